"""FrameMind's episodes: the views of a group, what calls do, when it ends."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from agentic_video.graders.base import Graders
from agentic_video.graders.judge import EndpointError
from agentic_video.systems.framemind.reward import FrameMindWeights
from agentic_video.systems.framemind.system import FrameMind
from agentic_video.types.action import Calls
from agentic_video.types.frame import Frame
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory
from tests.conftest import MemorySource
from tests.systems.framemind.texts import REPLY, REST, SMALL, at, clip, look, run, times


def opening_frames(trajectory: Trajectory) -> list[FrameRef]:
    return [part for message in trajectory.opening for part in message.parts if isinstance(part, FrameRef)]


def test_rollouts_of_a_group_begin_with_different_views(qa: VideoQA) -> None:
    views = [opening_frames(run(FrameMind(), qa, MemorySource(60.0), REPLY, rollout_index=i)) for i in range(8)]
    assert [len(frames) for frames in views] == [64, 59, 55, 50, 46, 41, 37, 32]
    assert [{(frame.width, frame.height) for frame in frames} for frames in views] == [
        {(side, side)} for side in (224, 252, 280, 308, 364, 392, 420, 448)
    ]


def test_a_view_spans_the_whole_video(qa: VideoQA, source: MemorySource) -> None:
    # 600 frames: linspace(0, 599, 4) is 0, 199.67, 399.33, 599
    frames = opening_frames(run(SMALL, qa, source, REPLY, rollout_index=7))
    assert [frame.index for frame in frames] == [0, 200, 399, 599]


def test_validation_begins_with_the_many_small_frames(qa: VideoQA, source: MemorySource) -> None:
    frames = opening_frames(run(FrameMind(), qa, source, REPLY))  # one rollout: number 0
    assert (len(frames), frames[0].width) == (64, 224)


def test_opening_says_what_the_agent_may_do(qa: VideoQA, source: MemorySource) -> None:
    texts = [part for part in run(FrameMind(), qa, source, REPLY).opening[0].parts if isinstance(part, str)]
    assert "at most 3 turns" in texts[0] and "8 to 20 frames" in texts[0] and "60.00 seconds" in texts[0]
    assert '{"name": "FrameAt", "arguments": {"t": seconds}}' in texts[0]
    assert texts[1] == "<0.00s>"
    assert texts[-1] == "\nWhat colour flashes at 42 s?\nA. red\nB. green\nC. blue\nD. grey"


def test_frame_at_shows_the_closest_frame_in_large(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(FrameMind(), qa, source, look(at(42.04)), REPLY)
    assert trajectory.turns[0].observation == (
        "<tool_response>\n",
        "FrameAt:\n",
        "<42.00s>",
        FrameRef(420, 42.0, 448, 448),
        "\n",
        "</tool_response>",
    )


def test_video_clip_shows_both_ends_and_more_of_a_longer_stretch(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(FrameMind(), qa, source, look(clip(40, 43.5)), look(clip(0, 60)), REPLY)
    # 2 * 3.5 = 7, at least 8: every half second
    assert times(trajectory, 0) == [40.0, 40.5, 41.0, 41.5, 42.0, 42.5, 43.0, 43.5]
    assert len(times(trajectory, 1)) == 20
    assert times(trajectory, 1)[0] == 0.0 and times(trajectory, 1)[-1] == 59.9


def test_a_clip_shows_no_frame_twice(qa: VideoQA, source: MemorySource) -> None:
    # 0.2 s at 10 frames a second hold three frames
    assert times(run(FrameMind(), qa, source, look(clip(5, 5.2)), REPLY), 0) == [5.0, 5.1, 5.2]


def test_a_clip_of_a_moment_is_no_clip(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(FrameMind(), qa, source, look(clip(0, 1e-300)), look(clip(5, 5.09)), REPLY)
    assert [turn.illegal_calls for turn in trajectory.turns] == [1, 1, 0]
    assert times(trajectory, 0) == times(trajectory, 1) == []


def test_several_calls_are_answered_in_order(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, look(clip(41, 43), at(50), at(99)), REPLY)
    turn = trajectory.turns[0]
    texts = [part for part in turn.observation if isinstance(part, str)]
    assert [text for text in texts if text.endswith(":\n")] == ["VideoClip:\n", "FrameAt:\n"]
    assert texts[-2] == "ERROR: t lies outside the video, which lasts 60.00 seconds.\n"
    assert (turn.legal_calls, turn.illegal_calls) == (2, 1)
    assert times(trajectory, 0) == [41.0, 41.7, 42.3, 43.0, 50.0]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("FrameAt(3)", "not valid JSON"),
        ("", "not valid JSON"),
        ("[1]", "not a JSON object"),
        ('{"name": "Zoom", "arguments": {"t": 3}}', "no such tool, only FrameAt and VideoClip"),
        ('{"name": "refused", "arguments": {"reason": "x"}}', "no such tool"),
        ('{"name": ["FrameAt"], "arguments": {"t": 3}}', "no such tool"),
        ('{"arguments": {"t": 3}}', "no such tool"),
        ('{"name": "FrameAt"}', "must be a JSON object"),
        ('{"name": "FrameAt", "arguments": [3]}', "must be a JSON object"),
        ('{"name": "FrameAt", "arguments": {"t": "3"}}', "must be a number"),
        ('{"name": "FrameAt", "arguments": {"t": true}}', "must be a number"),
        ('{"name": "FrameAt", "arguments": {"t": [3]}}', "must be a number"),
        ('{"name": "FrameAt", "arguments": {"t": ' + "[" * 400 + "]" * 400 + "}}", "nested too deeply"),
        ('{"name": "FrameAt", "arguments": {"t": NaN}}', "NaN is not a number"),
        ('{"name": "FrameAt", "arguments": {"t": 1e999}}', "too large"),
        ('{"name": "FrameAt", "arguments": {"t": ' + "9" * 1000 + "}}", "too large"),
        ('{"name": "FrameAt", "arguments": {"t": 3}}' + " " * 3000, "longer than 2000"),
    ],
)
def test_a_malformed_call_is_told_and_may_be_corrected(
    body: str, reason: str, qa: VideoQA, source: MemorySource
) -> None:
    trajectory = run(SMALL, qa, source, look(f"<tool_call>{body}</tool_call>"), look(at(42)), REPLY)
    told = str(trajectory.turns[0].observation[1])
    assert told.startswith("ERROR: ") and reason in told
    assert (trajectory.end, trajectory.tool_calls, trajectory.illegal_calls) == (EndReason.ANSWER, 1, 1)
    score = asyncio.run(SMALL.score(trajectory, qa, Graders()))
    assert (score.reward, score.format) == (2.5, 1.0)


def test_calls_beyond_the_cap_are_refused_at_once(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, look(*[at(42)] * 1000), REPLY)
    turn = trajectory.turns[0]
    assert (turn.legal_calls, turn.illegal_calls) == (3, 1)
    assert "only 3 calls are allowed" in str(turn.observation[-2])


def test_a_summary_without_calls_continues(qa: VideoQA, source: MemorySource) -> None:
    assert SMALL.parse(REST) == Calls(())
    trajectory = run(SMALL, qa, source, REST, REPLY)
    assert trajectory.end is EndReason.ANSWER
    assert trajectory.turns[0].observation == ("<tool_response>\n", "No call was made.\n", "</tool_response>")
    assert (trajectory.tool_calls, trajectory.illegal_calls) == (0, 0)


def test_the_last_turn_is_announced_and_the_third_is_the_last(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, look(at(1)), look(at(2)), look(at(3)))
    assert (trajectory.end, len(trajectory.turns), trajectory.tool_calls) == (EndReason.TURN_LIMIT, 3, 2)
    announced = ["last turn" in str(turn.observation[-1:]) for turn in trajectory.turns]
    assert announced == [False, True, False]


def test_messages_without_images_keep_everything_but_frames_and_their_labels() -> None:
    picture = Frame(0, 0.0, np.zeros((28, 28, 3), np.uint8))
    opening = ("instructions", "<0.00s>", picture, "<9.00s>", picture, "\nquestion")
    assert SMALL.drop_images(opening) == ("instructions", "\nquestion")
    shown = ("<tool_response>\n", "VideoClip:\n", "<1.00s>", picture, "\n", "ERROR: no.\n", "</tool_response>")
    assert SMALL.drop_images(shown) == ("<tool_response>\n", "VideoClip:\n", "\n", "ERROR: no.\n", "</tool_response>")


def test_images_count_by_turn_unless_all_stay(qa: VideoQA, source: MemorySource) -> None:
    # 8 at first, then 6 and 6
    texts = (look(clip(0, 9)), look(clip(10, 19)), REPLY)
    assert run(replace(SMALL, max_images=19), qa, source, *texts).end is EndReason.ANSWER
    assert run(replace(SMALL, max_images=19, context="all"), qa, source, *texts).end is EndReason.IMAGE_BUDGET
    assert run(replace(SMALL, max_images=20, context="all"), qa, source, *texts).end is EndReason.ANSWER


@pytest.mark.parametrize(
    ("answer", "acc"), [("B", 1.0), (" B ", 1.0), ("B.", 0.0), ("b", 0.0), ("A B C D", 0.0), ("green", 0.0)]
)
def test_answers_must_match_exactly(answer: str, acc: float, qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, f"<think>a</think><answer>{answer}</answer>")
    assert asyncio.run(SMALL.score(trajectory, qa, Graders())).acc == acc


def test_reward_of_played_episodes(qa: VideoQA, source: MemorySource) -> None:
    both = run(SMALL, qa, source, look(at(42), clip(41, 43)), REPLY)
    assert asyncio.run(SMALL.score(both, qa, Graders())).reward == pytest.approx(2.7)  # 1 + 0 + 1.2 + 0.5
    by_sums = replace(SMALL, weights=FrameMindWeights(turn_bonus="turn_sums"))
    assert asyncio.run(by_sums.score(both, qa, Graders())).reward == pytest.approx(2.2)


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("3", "3", 1.0),
        ("3", " 3\n", 1.0),
        ("3", "3.0", 0.0),  # a perfect match (paper, E.3)
        ("3", "three", 0.0),
        ("-2.5", "-2.5", 1.0),
        ("-2.5", "2.5", 0.0),
    ],
)
def test_a_number_must_be_said_exactly_and_needs_no_judge(qa: VideoQA, gold: str, answer: str, right: float) -> None:
    asked = replace(qa, options=(), answer=gold, answer_type="open_ended")
    trajectory = run(FrameMind(), asked, MemorySource(), f"<think>seen</think><answer>{answer}</answer>")
    assert FrameMind().needs(asked) == {}
    assert asyncio.run(FrameMind().grade(trajectory, asked, Graders())) == right
    silent = run(FrameMind(), asked, MemorySource(), "<think>seen</think>")
    assert asyncio.run(FrameMind().grade(silent, asked, Graders())) == 0.0


@pytest.mark.parametrize(("system", "gold"), [(FrameMind(number_match="judge"), "3"), (FrameMind(), "3 cars")])
def test_other_answers_need_a_judge(qa: VideoQA, system: FrameMind, gold: str) -> None:
    asked = replace(qa, options=(), answer=gold, answer_type="open_ended")
    assert set(system.needs(asked)) == {"judge"}
    trajectory = run(system, asked, MemorySource(), "<think>seen</think><answer>3</answer>")
    with pytest.raises(EndpointError):
        asyncio.run(system.grade(trajectory, asked, Graders()))
