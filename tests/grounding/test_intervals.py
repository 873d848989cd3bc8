"""Overlaps by hand, and against sets of whole seconds and exact fractions."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.grounding.intervals import (
    diou,
    iog,
    iop,
    iou,
    length,
    merged,
    overlap,
    set_diou,
    set_iog,
    set_iop,
    set_iou,
    set_overlap,
    total,
)
from agentic_video.types.row import Interval

TENTHS = st.integers(0, 60)
GRID = st.tuples(TENTHS, TENTHS)
"""Intervals between points of a grid, empty and reversed ones among them."""
PROPER = GRID.map(sorted).filter(lambda ends: ends[0] < ends[1]).map(tuple)
SETS = st.lists(GRID, max_size=6)
ANY = st.tuples(st.floats(), st.floats())
ALL = (iou, iop, iog)
ALL_OF_SETS = (set_iou, set_iop, set_iog)


def cells(intervals: Sequence[Interval]) -> set[int]:
    """The cells of the grid that intervals cover: an independent reckoning."""
    return {cell for start, end in intervals for cell in range(int(start), int(end))}


def exact(part: int, whole: int) -> float:
    return float(Fraction(part, whole)) if whole else 0.0


def test_by_hand() -> None:
    # 10..20 and 15..30: 5 in common, 20 together
    assert overlap((10, 20), (15, 30)) == 5
    assert iou((10, 20), (15, 30)) == 0.25
    assert iop((10, 20), (15, 30)) == 0.5
    assert iog((10, 20), (15, 30)) == pytest.approx(1 / 3)
    # centres 15 and 22.5, hull 20: 0.25 - (7.5 / 20) ** 2
    assert diou((10, 20), (15, 30)) == pytest.approx(0.109375)
    # apart: centres 1 and 9, hull 10
    assert iou((0, 2), (8, 10)) == 0
    assert diou((0, 2), (8, 10)) == pytest.approx(-0.64)
    # they touch
    assert iou((0, 2), (2, 4)) == 0
    assert diou((0, 2), (2, 4)) == pytest.approx(-0.25)


def test_sets_by_hand() -> None:
    # 0..4 and 6..10 against 2..8: 2 + 2 in common, 10 together, 8 and 6 alone
    one, other = [(6, 10), (0, 4), (3, 4)], [(2, 5), (5, 8)]
    assert merged(one) == ((0, 4), (6, 10)) and merged(other) == ((2, 8),)
    assert (total(one), total(other), set_overlap(one, other)) == (8, 6, 4)
    assert set_iou(one, other) == 0.4
    assert set_iop(one, other) == 0.5
    assert set_iog(one, other) == pytest.approx(2 / 3)


def test_distance_of_sets_by_hand() -> None:
    # 0..4 and 6..10 against 2..8: IoU .4; both lie around 5
    assert set_diou([(6, 10), (0, 4), (3, 4)], [(2, 5), (5, 8)]) == pytest.approx(0.4)
    # 0..1 and 3..4 against 8..10: from 0 to 4 around 2, from 8 to 10 around 9; seven apart in ten
    assert set_diou([(0, 1), (3, 4)], [(8, 10)]) == pytest.approx(-0.49)


@given(PROPER, PROPER)
def test_of_single_intervals_it_is_their_distance_iou(one: Interval, other: Interval) -> None:
    assert set_diou([one], [other]) == pytest.approx(diou(one, other), abs=1e-12)


@pytest.mark.parametrize("empty", [(5.0, 5.0), (8.0, 2.0), (math.nan, 3.0), (0.0, math.nan), (0.0, math.inf)])
@pytest.mark.parametrize("measure", ALL)
def test_an_empty_interval_earns_nothing(empty: Interval, measure: Callable[[Interval, Interval], float]) -> None:
    assert measure(empty, (0, 10)) == measure((0, 10), empty) == measure(empty, empty) == 0.0
    assert diou(empty, (0, 10)) == diou((0, 10), empty) == -1.0
    assert set_iou([empty], [(0, 10)]) == set_iop([empty], [(0, 10)]) == set_iog([(0, 10)], [empty]) == 0.0
    assert merged([empty, (1, 2)]) == ((1, 2),)


@given(GRID, GRID)
def test_one_with_one_as_counted_on_a_grid(one: Interval, other: Interval) -> None:
    left, right = cells([one]), cells([other])
    assert overlap(one, other) == len(left & right)
    assert iou(one, other) == exact(len(left & right), len(left | right))
    assert iop(one, other) == exact(len(left & right), len(left))
    assert iog(one, other) == exact(len(left & right), len(right))


@given(SETS, SETS)
def test_sets_as_counted_on_a_grid(one: list[Interval], other: list[Interval]) -> None:
    left, right = cells(one), cells(other)
    assert (total(one), set_overlap(one, other)) == (len(left), len(left & right))
    assert set_iou(one, other) == exact(len(left & right), len(left | right))
    assert set_iop(one, other) == exact(len(left & right), len(left))
    assert set_iog(one, other) == exact(len(left & right), len(right))


@given(PROPER, PROPER)
def test_distance_iou_by_exact_fractions(one: Interval, other: Interval) -> None:
    union = cells([one]) | cells([other])
    hull = Fraction(max(union) + 1 - min(union))
    distance = Fraction(int(sum(one)) - int(sum(other)), 2)
    wanted = Fraction(len(cells([one]) & cells([other])), len(union)) - (distance / hull) ** 2
    assert diou(one, other) == pytest.approx(float(wanted), abs=1e-12)


@given(ANY, ANY)
def test_whatever_the_numbers(one: Interval, other: Interval) -> None:
    for measure in (*ALL, lambda left, right: set_iou([left], [right])):
        assert 0.0 <= measure(one, other) <= 1.0
    assert iou(one, other) == iou(other, one)
    assert iop(one, other) == iog(other, one)
    assert -1.0 <= diou(one, other) == diou(other, one) <= 1.0
    assert iou(one, one) == iop(one, one) == float(length(one) > 0)
    assert diou(one, one) == (1.0 if length(one) else -1.0)


@given(st.lists(ANY, max_size=4), st.lists(ANY, max_size=4))
def test_sets_whatever_the_numbers(one: list[Interval], other: list[Interval]) -> None:
    for measure in ALL_OF_SETS:
        assert 0.0 <= measure(one, other) <= 1.0
    assert set_iou(one, other) == set_iou(other, one) == set_iou(one + one, other[::-1])


@given(PROPER, PROPER)
def test_iou_is_the_least_and_one_interval_is_a_set(one: Interval, other: Interval) -> None:
    assert iou(one, other) <= min(iop(one, other), iog(one, other))
    assert diou(one, other) <= iou(one, other)
    assert set_iou([one], [other]) == pytest.approx(iou(one, other))
    inside = other[0] <= one[0] and one[1] <= other[1]
    assert (iop(one, other) == 1.0) == inside


@given(SETS, SETS, PROPER)
def test_more_of_what_is_wrong_never_pays(one: list[Interval], gold: list[Interval], more: Interval) -> None:
    if not cells([more]) & cells(gold):
        assert set_iou([*one, more], gold) <= set_iou(one, gold)
    # nor does cutting an interval into pieces
    middle = (more[0] + more[1]) / 2
    pieces = [*one, (more[0], middle), (middle, more[1])]
    assert set_iou(pieces, gold) == pytest.approx(set_iou([*one, more], gold))
