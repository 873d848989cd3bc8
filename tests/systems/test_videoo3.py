"""Video-o3: its grammar, its reward (accuracy + format + a bonus by the question's class), its episodes."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.videoo3 import VideoO3
from agentic_video.systems.videoo3.grammar import parse_turn, thinks_then
from agentic_video.systems.videoo3.reward import (
    CLASSES,
    VideoO3Weights,
    answers_segment,
    called_spans,
    format_score,
    multi_clue_overlap,
    reward_class,
    single_clue_overlap,
    videoo3_score,
)
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import ClipRef, EndReason, FrameRef, Trajectory, Turn, recorded_frames
from tests.conftest import MemorySource
from tests.systems.played import ended, run

SMALL = VideoO3(overview_max_frames=8, overview_tokens=16, frame_min_tokens=1, frame_max_tokens=4)
REPLY = "<think>seen</think><answer>B</answer>"


def ground(start: object, end: object, strategy: str = "medium") -> str:
    """A turn that looks at a segment."""
    call = f'{{"temporal_segment": [{start}, {end}], "sampling_strategy": "{strategy}"}}'
    return f"<think>closer</think><grounding>{call}</grounding>"


def looks(start: float, end: float, strategy: str = "medium") -> Action:
    arguments = {"temporal_segment": [start, end], "sampling_strategy": strategy}
    return Calls((ToolCall("ground_segment", arguments),))


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (ground(40, 48), looks(40, 48)),
        (REPLY, Answer("B")),
        ("<think>a</think><answer>A</answer><answer> B </answer>", Answer("B")),  # the last block counts
        (ground(1, 3) + ground(5, 9), looks(5, 9)),
        (REPLY + ground(1, 3), looks(1, 3)),
        ("<grounding>{'temporal_segment': [1, 3], 'sampling_strategy': 'fine'}</grounding>", looks(1, 3, "fine")),
        ('<grounding>json {"temporal_segment": [1, 3], "sampling_strategy": "fine"};</grounding>', looks(1, 3, "fine")),
        ("<grounding>[1, 3]</grounding>", Illegal("the call is not a JSON object")),
        ("<grounding></grounding>", Illegal("the call is not valid JSON")),
        ("<grounding>} {</grounding>", Illegal("the call is not valid JSON")),
        ('<grounding>{"temporal_segment": [NaN, 3]}</grounding>', Illegal("NaN is not a number")),
        ("<grounding>{", Illegal("neither a call nor an answer")),
    ],
)
def test_turns(text: str, action: Action) -> None:
    assert parse_turn(text) == action


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (REPLY, True),
        ("\n<think>a</think>\n<answer>B</answer>\n", True),
        (" <think>a</think><answer>B</answer>", False),  # a line break is free, a space isn't
        ("<think>a</think>\n\n<answer>B</answer>", False),
        ("<think>a</think>so<answer>B</answer>", False),
        ("<think>a</think><answer>B</answer>.", False),
        ("<answer>B</answer>", False),
        ("<think>a<think>b</think><answer>B</answer>", False),
        ("<think>a</think><think>b</think><answer>B</answer>", False),
        ("<think>a</think><answer>A</answer><answer>B</answer>", False),
        ("<think>a<grounding></think><answer>B</answer>", False),
        ("<answer>B</answer><think>a</think>", False),
        (ground(1, 2), False),
    ],
)
def test_a_whole_turn_is_a_thought_and_an_answer(text: str, whole: bool) -> None:
    assert thinks_then(text, "answer") is whole
    assert thinks_then(text.replace("answer", "grounding"), "grounding") is (whole or text == ground(1, 2))


QA = VideoQA("q", "v", "What?", "B", options=("red", "green"), windows=((10.0, 20.0),))


def turn(text: str, legal: int | None = None) -> Turn:
    called = "<grounding>" in text
    done = int(called) if legal is None else legal
    return Turn(text, parse_turn(text), 9, legal_calls=done, illegal_calls=int(called) - done)


def episode(*texts: str | Turn, end: EndReason = EndReason.ANSWER) -> Trajectory:
    return ended(*(text if isinstance(text, Turn) else turn(text) for text in texts), end=end)


def reward(trajectory: Trajectory, source: str, acc: float = 1.0, qa: VideoQA = QA) -> float:
    return videoo3_score(trajectory, replace(qa, data_source=source), acc, VideoO3Weights(), "none").reward


# 12-17 against 10-20: five seconds in common of ten together; centres 14.5 and 15, hull 10:
# DIoU = .5 - .0025 = .4975
CLOSE = (0.5 + 1.0 + 0.5 + (0.4975 + 1) / 2) / 4


@pytest.mark.parametrize(
    ("texts", "overlap"),
    [
        ((ground(10, 20),), 1.0),
        ((ground(12, 17),), CLOSE),
        # the union of all calls: 12-15 and 14-17
        ((ground(12, 15), ground(14, 17)), CLOSE),
        # nothing in common, 30-40: IoU, IoP, IoG 0; centres 20 apart, hull 30: DIoU = -(20/30)^2
        ((ground(30, 40),), (1 - 400 / 900) / 2 / 4),
        # 10-12 and 28-30: hull 10-30 against 10-20: inter 2, union 12, IoP 2/4, IoG 2/10, centres 5 apart, hull 20
        ((ground(10, 12), ground(28, 30)), (2 / 12 + 0.5 + 0.2 + (2 / 12 - 25 / 400 + 1) / 2) / 4),
    ],
)
def test_overlap_with_one_clue(texts: tuple[str, ...], overlap: float) -> None:
    trajectory = episode(*texts, REPLY)
    assert single_clue_overlap(called_spans(trajectory), QA.windows) == pytest.approx(overlap)
    decay = 1 - 0.05 * (len(texts) - 1)
    assert reward(trajectory, "clue_single_w_tool") == pytest.approx(2 + decay * (overlap + 1) / 2)


def test_overlap_with_several_clues() -> None:
    clues = ((10.0, 20.0), (18.0, 22.0), (40.0, 44.0))  # merged: 10-22, 40-44, sixteen seconds
    spans = called_spans(episode(ground(10, 14), ground(40, 44), ground(60, 64), REPLY))
    # twelve seconds looked at, eight in common, twenty in all
    assert multi_clue_overlap(spans, clues) == pytest.approx((2 * 8 / 20 + 8 / 12 + 8 / 16) / 4)
    several = replace(QA, windows=clues)
    trajectory = episode(ground(10, 14), ground(40, 44), ground(60, 64), REPLY)
    assert reward(trajectory, "clue_multi_w_tool", qa=several) == pytest.approx(
        2 + ((0.8 + 8 / 12 + 0.5) / 4 + 1) / 2  # three calls cost nothing
    )


@pytest.mark.parametrize(
    ("source", "without", "once", "thrice"),
    [
        ("clue_single_w_tool", 0.0, 1.0, 0.9),  # each look is the clue itself
        ("tool_reward_with_round_penalty", 0.0, 1.0, 0.9),
        ("temporal_grounded_qa_iou", 0.0, 1.0, 0.9),
        ("clue_multi_w_tool", 0.0, 1.0, 1.0),
        ("temporal_grounded_qa", 0.0, 0.75, 0.675),  # (.5 + 1) / 2, wherever the looks are
        ("clue_single_wo_tool", 0.75, 0.675, 0.525),  # .75 (1 - .1 calls)
        ("tool_penalty_single_turn", 0.75, 0.675, 0.525),
        ("clue_multi_wo_tool", 0.5, 0.5, 0.5),
        ("tool_free_form", 0.5, 0.5, 0.5),
        ("videomme", 0.0, 0.0, 0.0),
    ],
)
def test_bonus_by_class(source: str, without: float, once: float, thrice: float) -> None:
    look = ground(10, 20)
    for texts, bonus in (((), without), ((look,), once), ((look,) * 3, thrice)):
        assert reward(episode(*texts, REPLY), source) == pytest.approx(2 + bonus)
        assert reward(episode(*texts, REPLY), source, acc=0.0) == pytest.approx(1.0)  # only with a right answer


def test_the_bonus_needs_the_whole_format() -> None:
    repaired = ground(10, 20).replace('"', "'")  # one error in two turns
    assert reward(episode(repaired, REPLY), "clue_single_w_tool") == pytest.approx(1.5)
    assert reward(episode(ground(10, 20), "<answer>B</answer>"), "clue_single_w_tool") == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("trajectory", "fmt"),
    [
        (episode(REPLY), 1.0),
        (episode(ground(1, 3), REPLY), 1.0),
        (episode(ground(1, 3).replace("medium", "best"), REPLY), 0.5),
        (episode("<think>a</think><grounding>{}</grounding>", ground(1, 3), REPLY), 1 - 2 / 3),
        (episode("<think>a</think><grounding>x</grounding>", REPLY), 0.5),
        (episode(*["<think>a</think><grounding>{}</grounding>"] * 3, REPLY), 0.0),  # six errors in four turns
        (episode("<grounding>{}</grounding>", REPLY), 0.0),  # no thought
        (episode(ground(1, 3) + " ", REPLY), 0.0),
        (episode(ground(1, 3), end=EndReason.TURN_LIMIT), 0.0),
        (episode(ground(1, 3), end=EndReason.IMAGE_BUDGET), 0.0),
        (episode(end=EndReason.ENGINE_ERROR), 0.0),
    ],
)
def test_format(trajectory: Trajectory, fmt: float) -> None:
    assert format_score(trajectory) == pytest.approx(fmt)


def test_a_refused_call_is_no_look() -> None:
    refused = turn(ground(10, 10.5), legal=0)
    assert called_spans(episode(refused, REPLY)) == ()
    assert reward(episode(refused, REPLY), "clue_single_w_tool") == pytest.approx(2.0)
    # next to a look it is one more call
    assert reward(episode(refused, ground(10, 20), REPLY), "clue_single_w_tool") == pytest.approx(2 + 0.95)


def test_without_clues_only_the_call_is_paid() -> None:
    bare = replace(QA, windows=())
    assert reward(episode(ground(1, 3), REPLY), "clue_single_w_tool", qa=bare) == pytest.approx(2.5)
    assert reward(episode(ground(1, 3), REPLY), "clue_multi_w_tool", qa=bare) == pytest.approx(2.5)


def test_a_row_s_class() -> None:
    assert reward_class(replace(QA, data_source="clue_multi_wo_tool"), "none") == "free"
    assert reward_class(replace(QA, data_source="seeker"), "any_tool") == "any_tool"
    named = replace(QA, data_source="clue_multi_wo_tool", extra={"reward_class": "clue_single_w_tool"})
    assert reward_class(named, "none") == "single_tool"
    assert reward_class(replace(QA, extra={"reward_class": ["free"]}), "none") == "none"
    assert len(CLASSES) == 10


SEGMENT = VideoQA("q", "v", "When?", "10 - 20", answer_type="interval", windows=((10.0, 20.0),))


@pytest.mark.parametrize(
    ("answer", "fmt"),
    [
        ('{"temporal_segment": [12, 17]}', 1.0),
        ("{'temporal_segment': [12, 17]}", 1.0),
        ('{"temporal_segment": [12]}', 0.0),
        ('{"segment": [12, 17]}', 0.0),
        ("12 - 17", 0.0),
        ("[12, 17]", 0.0),
    ],
)
def test_grounding_rows_pay_overlap_and_format(answer: str, fmt: float) -> None:
    trajectory = episode(f"<think>a</think><answer>{answer}</answer>")
    assert answers_segment(trajectory) == bool(fmt)
    score = videoo3_score(trajectory, replace(SEGMENT, data_source="clue_single_w_tool"), 0.5, VideoO3Weights(), "free")
    assert (score.reward, score.acc, score.format) == (0.5 + fmt, 0.5, fmt)
    assert not answers_segment(episode(f"<answer>{answer}</answer>"))


def test_terms_add_up_and_weights_are_used() -> None:
    weights = VideoO3Weights(acc=2.0, format=3.0, clue=5.0)
    qa = replace(QA, data_source="clue_multi_wo_tool")
    score = videoo3_score(episode(REPLY), qa, 1.0, weights, "none")
    assert score.terms == {"acc": 2.0, "format": 3.0, "clue": 2.5} and score.reward == 7.5


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


@pytest.mark.parametrize(
    ("strategy", "tokens"),
    # 20 s: 40 frames, 20 pairs. 102 each: 376 x 211 pixels, 13 x 7; 204: 533 x 300, 19 x 10; 307: 654 x 368, 23 x 13
    [("coarse", 91), ("medium", 190), ("fine", 299)],
)
def test_a_look_s_tokens_follow_its_strategy(qa: VideoQA, strategy: str, tokens: int) -> None:
    source = MemorySource(60.0, size=HD)
    clip = clip_of(run(VideoO3(), qa, source, ground(10, 30, strategy), REPLY).turns[0].observation)
    assert len(clip.frames) == 40 and clip.width * clip.height // 784 == tokens


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
