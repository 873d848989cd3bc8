"""Video-o3's episodes: what is shown and at which size, what calls do, when it ends."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.videoo3 import VideoO3
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import ClipRef, EndReason, FrameRef, Trajectory, recorded_frames
from tests.conftest import MemorySource
from tests.systems.videoo3.texts import REPLY, SMALL, ground, run

HD = (1280, 720)


def texts(trajectory: Trajectory, role: str = "user") -> list[str]:
    return [
        part
        for message in trajectory.opening
        if message.role == role
        for part in message.parts
        if isinstance(part, str)
    ]


def clip_of(parts: Any) -> ClipRef:
    (clip,) = [part for part in parts if isinstance(part, ClipRef)]
    return clip


def test_the_overview_is_observation_0_with_its_line_then_the_question(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(VideoO3(), qa, source, REPLY)
    first, line, question = texts(trajectory)
    # 60 s at 2 a second
    assert first.startswith("Observation 0")
    assert line == "\n120 frames at 2.00 frames a second, from 0.0 to 60.0 seconds.\n"
    assert question.startswith("What colour flashes at 42 s?\nA. red\nB. green\nC. blue\nD. grey\n")
    assert "at once" in question
    assert len(clip_of(trajectory.opening[1].parts).frames) == 120
    (instructions,) = texts(trajectory, "system")
    for told in ("<grounding>", '"sampling_strategy": "medium"', "<answer>X</answer>", "5 times", "1 apart"):
        assert told in instructions


@pytest.mark.parametrize(
    ("seconds", "count"),
    # two a second, even; four at least; at most 768
    [(60.0, 120), (60.8, 120), (1.0, 4), (500.0, 768)],
)
def test_frames_of_the_overview(qa: VideoQA, seconds: float, count: int) -> None:
    frames = run(VideoO3(), qa, MemorySource(seconds, fps=4.0), REPLY).frames
    assert len(frames) == count
    assert frames[0].index == 0 and frames[-1].index == int(seconds * 4) - 1


@pytest.mark.parametrize(
    ("seconds", "tokens"),
    [
        # 384 pairs: 16,384 / 384 = 42 each. 42 * 784 pixels at 16:9 are 241 x 136: 8 x 4 tokens of 28 pixels
        (500.0, 32),
        # 60 pairs: 273 each: 617 x 347 pixels, 22 x 12
        (60.0, 264),
        # 5 pairs could have 3,276 each, but 768 is the most: 1,034 x 582 pixels, 36 x 20
        (5.0, 720),
    ],
)
def test_the_overview_s_tokens_are_shared(qa: VideoQA, seconds: float, tokens: int) -> None:
    clip = clip_of(run(VideoO3(), qa, MemorySource(seconds, fps=4.0, size=HD), REPLY).opening[1].parts)
    assert clip.width * clip.height // 784 == tokens
    assert tokens * (len(clip.frames) // 2) <= 16_384


def test_images_share_them_yield_fairly(qa: VideoQA) -> None:
    system = VideoO3(frames_as="images")
    trajectory = run(system, qa, MemorySource(60.0, fps=4.0, size=HD), REPLY)
    frame = trajectory.frames[0]
    # 120 frames: 136 each: 435 x 245 pixels, 15 x 8
    assert frame.width * frame.height // 784 == 120
    assert "<0.00s>" in texts(trajectory) and not any(isinstance(visual, ClipRef) for visual in trajectory.visuals)


def test_a_small_frame_is_enlarged_to_twenty_tokens(qa: VideoQA) -> None:
    clip = clip_of(run(VideoO3(), qa, MemorySource(60.0, size=(64, 64)), REPLY).opening[1].parts)
    # 2 x 2 tokens; 20 * 784 pixels are 125.2 square, 4.47 sides of 28 rounded up
    assert (clip.width, clip.height) == (140, 140)


def test_the_port_s_overview(qa: VideoQA) -> None:
    system = VideoO3(overview="uniform", overview_max_frames=128, overview_tokens=6_144)
    clip = clip_of(run(system, qa, MemorySource(300.0, fps=4.0, size=HD), REPLY).opening[1].parts)
    # 64 pairs: 96 each: 365 x 205 pixels, 13 x 7
    assert len(clip.frames) == 128 and clip.width * clip.height // 784 == 91


@pytest.mark.parametrize(
    ("strategy", "tokens"),
    # 20 s: 40 frames, 20 pairs. 102 each: 376 x 211 pixels, 13 x 7; 204: 533 x 300, 19 x 10; 307: 654 x 368, 23 x 13
    [("coarse", 91), ("medium", 190), ("fine", 299)],
)
def test_a_look_s_tokens_follow_its_strategy(qa: VideoQA, strategy: str, tokens: int) -> None:
    source = MemorySource(60.0, size=HD)
    clip = clip_of(run(VideoO3(), qa, source, ground(10, 30, strategy), REPLY).turns[0].observation)
    assert len(clip.frames) == 40 and clip.width * clip.height // 784 == tokens


def test_a_look_is_the_next_observation(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(VideoO3(), qa, source, ground(41, 43), ground(10, 12.5), REPLY)
    header, clip, line, go_on = trajectory.turns[0].observation
    assert str(header).startswith("Observation 1") and isinstance(clip, ClipRef)
    # four frames at least: 41, 41.667, 42.333, 43
    assert clip.times == (41.0, 41.7, 42.3, 43.0)
    assert line == "\n4 frames at 2.00 frames a second, from 41.0 to 43.0 seconds.\n"
    assert "answer" in str(go_on)
    assert str(trajectory.turns[1].observation[0]).startswith("Observation 2")
    assert (trajectory.tool_calls, trajectory.end) == (2, EndReason.ANSWER)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (ground(5, 5.5), "must last 1 s"),
        (ground(80, 90), "must last 1 s"),
        (ground(1, 3, "best"), "sampling_strategy"),
        ("<think>a</think><grounding>{}</grounding>", "temporal_segment is missing"),
        ("<think>a</think><grounding>?</grounding>", "not valid JSON"),
    ],
)
def test_a_failed_look_is_reported_and_the_episode_continues(
    qa: VideoQA, source: MemorySource, call: str, reason: str
) -> None:
    trajectory = run(SMALL, qa, source, call, ground(1, 3), REPLY)
    (said,) = trajectory.turns[0].observation
    assert reason in str(said)
    assert (trajectory.turns[0].legal_calls, trajectory.illegal_calls, trajectory.tool_calls) == (0, 1, 1)
    assert str(trajectory.turns[1].observation[0]).startswith("Observation 2")  # the number is the turn's
    assert trajectory.answer == "B"


def test_the_sixth_turn_must_answer(qa: VideoQA, source: MemorySource) -> None:
    looks = [ground(second, second + 2) for second in range(10, 20, 2)]
    assert run(SMALL, qa, source, *looks, REPLY).answer == "B"
    late = run(SMALL, qa, source, *looks, ground(1, 3))
    assert (late.end, len(late.turns), late.tool_calls) == (EndReason.TURN_LIMIT, 6, 5)


def test_in_evaluation_an_answer_is_forced_and_training_leaves_out_such_rollouts(
    qa: VideoQA, source: MemorySource
) -> None:
    said = [*[ground(second, second + 2) for second in range(10, 22, 2)], REPLY]
    policy = ScriptedPolicy(lambda view: said[len(view.turns)])
    played = asyncio.run(play(SMALL, policy, qa, source, force_answer=True))
    assert (played.answer, len(played.turns), played.tool_calls) == ("B", 7, 5)
    assert played.turns[5].observation == (SMALL.forced_answer,)
    assert {EndReason.TURN_LIMIT, EndReason.IMAGE_BUDGET, EndReason.TOKEN_BUDGET} == set(SMALL.untrained_ends)


def test_the_thirteenth_video_ends_the_episode(qa: VideoQA, source: MemorySource) -> None:
    # the overview and two looks are three videos; a failed look is none
    system = replace(SMALL, max_videos=3)
    trajectory = run(system, qa, source, ground(1, 3), ground(9, 9), ground(4, 6), ground(7, 9))
    assert (trajectory.end, trajectory.tool_calls, len(trajectory.turns)) == (EndReason.IMAGE_BUDGET, 2, 4)
    assert run(replace(system, overview="none"), qa, source, *[ground(1, 3)] * 3, REPLY).tool_calls == 3


def test_a_segment_is_asked_for_with_its_own_instructions(qa: VideoQA, source: MemorySource) -> None:
    asked = VideoQA("q", "memory", "When does it flash?", "41 - 43", answer_type="interval", windows=((41.0, 43.0),))
    said = '<think>at 41</think><answer>{"temporal_segment": [41, 42]}</answer>'
    trajectory = run(VideoO3(), asked, source, said)
    (instructions,) = texts(trajectory, "system")
    assert '"temporal_segment": [start, end]' in instructions and "<grounding>" not in instructions
    score = asyncio.run(VideoO3().score(trajectory, asked, Graders()))
    assert (score.acc, score.reward) == (0.5, 1.5)


def test_few_frames_are_shown_once_each(qa: VideoQA) -> None:
    # a frame a second: of four times within a second there are two frames
    clip = clip_of(run(SMALL, qa, MemorySource(20.0, fps=1.0), ground(4, 5), REPLY).turns[0].observation)
    assert clip.times == (4.0, 5.0)


def test_a_video_of_one_frame_is_an_image(qa: VideoQA) -> None:
    trajectory = run(SMALL, qa, MemorySource(1.0, fps=1.0), REPLY)
    assert [type(visual) for visual in trajectory.visuals] == [FrameRef]
    assert len(recorded_frames(trajectory.visuals)) == 1
