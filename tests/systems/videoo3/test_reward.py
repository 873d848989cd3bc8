"""Worked cases of Video-o3's reward: accuracy + format + a bonus by the question's class, which needs both whole."""

from dataclasses import replace

import pytest

from agentic_video.systems.videoo3.grammar import parse_turn
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
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn
from tests.systems.videoo3.texts import REPLY, ground

QA = VideoQA("q", "v", "What?", "B", options=("red", "green"), windows=((10.0, 20.0),))


def turn(text: str, legal: int | None = None) -> Turn:
    called = "<grounding>" in text
    done = int(called) if legal is None else legal
    return Turn(text, parse_turn(text), 9, legal_calls=done, illegal_calls=int(called) - done)


def episode(*texts: str | Turn, end: EndReason = EndReason.ANSWER) -> Trajectory:
    turns = tuple(text if isinstance(text, Turn) else turn(text) for text in texts)
    return Trajectory("q", "videoo3", (), turns, end)


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
