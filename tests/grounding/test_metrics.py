"""Benchmarks' metrics by hand, and average precision against a slow reckoning of the published definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.grounding.intervals import iou
from agentic_video.grounding.metrics import (
    MAP_THRESHOLDS,
    acc_at_gqa,
    average_precision,
    best_iop,
    best_iou,
    mean_average_precision,
    of_length,
    recall_at_one,
)
from agentic_video.types.row import Interval

TENS = st.integers(0, 30)
SPANS = st.lists(st.tuples(TENS, TENS), max_size=5)
GOLD = [(0.0, 10.0), (20.0, 40.0)]


def test_the_best_window_counts_for_each_measure_apart() -> None:
    # 5..30: 5 of 30 and 10 of 35 by IoU; 5 of 25 and 10 of 25 by IoP
    assert best_iou((5, 30), GOLD) == pytest.approx(10 / 35)
    assert best_iop((5, 30), GOLD) == pytest.approx(0.4)
    # IoU likes the long window (6 / 20 against 4 / 14), IoP the short one
    assert best_iou((34, 40), [(30, 38), (20, 40)]) == pytest.approx(0.4)
    assert best_iop((34, 40), [(30, 38), (20, 40)]) == 1.0
    assert best_iou(None, GOLD) == best_iop(None, GOLD) == 0.0


def test_recall_reaches_its_threshold() -> None:
    # 0..7 of 0..10
    assert [recall_at_one((0, 7), GOLD, threshold) for threshold in (0.3, 0.5, 0.7, 0.71)] == [1, 1, 1, 0]
    assert recall_at_one(None, GOLD, 0.3) == recall_at_one((7, 0), GOLD, 0.3) == 0


def test_a_right_answer_must_be_grounded() -> None:
    # half of 5..15 is gold
    assert acc_at_gqa(1.0, (5, 15), GOLD) == 1.0
    assert acc_at_gqa(0.0, (5, 15), GOLD) == acc_at_gqa(0.9, (5, 15), GOLD) == 0.0
    assert acc_at_gqa(1.0, (5, 15.1), GOLD) == acc_at_gqa(1.0, None, GOLD) == 0.0
    assert acc_at_gqa(1.0, (5, 5), GOLD) == 0.0, "a point is within a window and is no interval"


def test_average_precision_by_hand() -> None:
    # a miss, then both windows: precisions 1/2 and 2/3, of which the greatest from there on counts: (2/3 + 2/3) / 2
    assert average_precision([(50, 60), (0, 10), (20, 40)], GOLD, 0.5) == pytest.approx(2 / 3)
    # a window is hit once; the second prediction of it is a miss: (1 + 2/3) / 2
    assert average_precision([(0, 10), (0, 9), (20, 40)], GOLD, 0.5) == pytest.approx(5 / 6)
    # one of two: precision 1 up to recall 1/2
    assert average_precision([(0, 10)], GOLD, 0.5) == 0.5
    assert average_precision([(0, 6)], GOLD, 0.6) == 0.5 and average_precision([(0, 6)], GOLD, 0.65) == 0.0
    assert average_precision([], GOLD, 0.5) == average_precision([(0, 10)], [], 0.5) == 0.0


def test_the_mean_over_thresholds_by_hand() -> None:
    assert MAP_THRESHOLDS == (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
    # 0..7 of 0..10 reaches 0.5 to 0.7: five of ten
    assert mean_average_precision([(0, 7)], [(0, 10)]) == 0.5
    assert mean_average_precision(GOLD, GOLD) == 1.0


def test_only_ten_predictions_count() -> None:
    misses: list[Interval] = [(90, 99)] * 9
    assert average_precision([*misses, (0, 10)], [(0, 10)], 0.5) == pytest.approx(0.1)
    assert average_precision([*misses, (90, 99), (0, 10)], [(0, 10)], 0.5) == 0.0


def test_windows_by_length() -> None:
    gold = [(0, 10), (0, 10.5), (0, 30), (0, 31), (5, 5)]
    assert [of_length(gold, group) for group in ("short", "middle", "long")] == [
        ((0, 10),),
        ((0, 10.5), (0, 30)),
        ((0, 31),),
    ]


def published(predicted: list[Interval], gold: list[Interval], threshold: float) -> float:
    """Average precision as it is defined: the area under the precision, made to fall, over recall."""
    taken: set[int] = set()
    points = []
    for rank, interval in enumerate(predicted, start=1):
        order = sorted(range(len(gold)), key=lambda number: (iou(interval, gold[number]), number), reverse=True)
        for number in order:
            if iou(interval, gold[number]) < threshold:
                break
            if number not in taken:
                taken.add(number)
                break
        points.append((len(taken) / len(gold), len(taken) / rank))
    area, before = 0.0, 0.0
    for place, (recall, _) in enumerate(points):
        area += (recall - before) * max(precision for _, precision in points[place:])
        before = recall
    return area


@given(SPANS, SPANS.filter(bool), st.sampled_from(MAP_THRESHOLDS))
def test_average_precision_as_defined(predicted: list[Interval], gold: list[Interval], threshold: float) -> None:
    assert average_precision(predicted, gold, threshold) == pytest.approx(published(predicted, gold, threshold))


@given(SPANS, SPANS.filter(bool))
def test_ranges(predicted: list[Interval], gold: list[Interval]) -> None:
    values = [average_precision(predicted, gold, threshold) for threshold in MAP_THRESHOLDS]
    assert all(0.0 <= value <= 1.0 for value in values)
    assert 0.0 <= mean_average_precision(predicted, gold) <= 1.0
    # what comes after never takes from what came before
    assert average_precision([*predicted, (100, 101)], gold, 0.5) == pytest.approx(values[0])
    first = predicted[0] if predicted else None
    assert best_iou(first, gold) <= best_iop(first, gold)
