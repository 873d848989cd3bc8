import json

from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.trajectory import EndReason, FrameRef, RecordedMessage, Trajectory, Turn

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
