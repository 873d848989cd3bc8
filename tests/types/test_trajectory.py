import json
from dataclasses import replace

import numpy as np

from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Clip, Frame, Origin
from agentic_video.types.message import Message
from agentic_video.types.trajectory import (
    ClipRef,
    EndReason,
    FrameRef,
    RecordedMessage,
    Trajectory,
    Turn,
    record_messages,
    record_parts,
    runs_of_size,
)

FRAME = FrameRef(index=3, time=0.3, width=56, height=28)
FULL = Trajectory(
    qa_id="q",
    system="s",
    opening=(RecordedMessage("user", ("look", FRAME)),),
    turns=(
        Turn("a", Calls((ToolCall("zoom", {"segment": [1, 2]}),)), 4, observation=("t", FRAME), legal_calls=1),
        Turn("b", Illegal("why"), 2, finished=False, illegal_calls=1),
        Turn("c", Answer("B"), 3),
    ),
    end=EndReason.ANSWER,
    rollout_index=5,
    num_tokens=40,
)


def test_round_trip_through_json() -> None:
    assert Trajectory.from_dict(json.loads(json.dumps(FULL.to_dict()))) == FULL


def test_counts() -> None:
    assert (FULL.answer, FULL.tool_calls, FULL.illegal_calls, len(FULL.frames)) == ("B", 1, 1, 2)


def test_only_an_answered_episode_has_an_answer() -> None:
    assert Trajectory.from_dict({**FULL.to_dict(), "end": "turn_limit"}).answer is None


def stored(number: int) -> Frame:
    """As a store gives it."""
    return Frame.stored(number, number / 10, np.zeros((28, 56, 3), np.uint8), Origin("v.mp4", number, (56, 28)), "key")


def test_references_stand_for_pictures() -> None:
    frame = stored(3)
    assert record_parts(("look", frame)) == ("look", FRAME)
    assert record_messages([Message("user", ("look", frame))]) == (RecordedMessage("user", ("look", FRAME)),)


def test_a_clip_is_recorded_as_its_frames_together() -> None:
    one, two = (stored(number) for number in (3, 4))
    (recorded,) = record_parts((Clip((one, two)),))
    assert recorded == ClipRef((FRAME, FrameRef(4, 0.4, 56, 28)))
    shown = replace(FULL, opening=(RecordedMessage("user", ("look", recorded, FRAME)),))
    raw = json.loads(json.dumps(shown.to_dict()))
    assert raw["opening"][0]["parts"][1] == {
        "frames": [
            {"index": 3, "time": 0.3, "width": 56, "height": 28},
            {"index": 4, "time": 0.4, "width": 56, "height": 28},
        ]
    }
    assert Trajectory.from_dict(raw) == shown
    assert [ref.index for ref in shown.frames] == [3, 4, 3, 3]
    assert shown.visuals == (recorded, FRAME, FRAME)


def test_frames_of_one_size_that_follow_one_another() -> None:
    sizes = ((3, 56), (9, 56), (4, 112), (5, 56))
    refs = [FrameRef(index, index / 10, width, 28) for index, width in sizes]
    assert list(runs_of_size(refs)) == [((56, 28), [3, 9]), ((112, 28), [4]), ((56, 28), [5])]
    assert not list(runs_of_size(()))
