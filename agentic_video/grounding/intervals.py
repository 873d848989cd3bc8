"""Overlap of intervals of a video, one with one and set with set.

An interval is its start and its end in seconds. One that is empty (its end isn't after its start) or isn't finite
overlaps with nothing: whatever is computed with it is 0, :func:`diou` its least. Nothing here divides by zero.

With the seconds that two have in common as the intersection: IoU is its share of their union, IoP (intersection over
prediction) of the predicted, IoG of the gold one. A set of intervals is the seconds that any of them covers, so none
counts twice.
"""

import math
from collections.abc import Iterable

from agentic_video.types.row import Interval


def length(interval: Interval) -> float:
    """Seconds of an interval; 0 for an empty one."""
    start, end = interval
    return end - start if start < end and math.isfinite(end - start) else 0.0


def overlap(first: Interval, second: Interval) -> float:
    """Seconds that two intervals have in common."""
    if not length(first) or not length(second):
        return 0.0
    return max(0.0, min(first[1], second[1]) - max(first[0], second[0]))


def iou(one: Interval, other: Interval) -> float:
    """Intersection over union, 0 to 1."""
    common = overlap(one, other)
    # Where they overlap, their union has no gap
    return _share(common, max(one[1], other[1]) - min(one[0], other[0])) if common else 0.0


def iop(predicted: Interval, gold: Interval) -> float:
    """Intersection over prediction, 0 to 1: 1 for a prediction within the gold interval.

    NExT-GQA's script also gives 1 to an empty prediction that lies within it; here that is 0.
    """
    return _share(overlap(predicted, gold), length(predicted))


def iog(predicted: Interval, gold: Interval) -> float:
    """Intersection over gold, 0 to 1: 1 for a prediction that contains the gold interval."""
    return _share(overlap(predicted, gold), length(gold))


def diou(one: Interval, other: Interval) -> float:
    """Distance IoU, -1 to 1: IoU less the squared distance of the centres over the squared length of the hull.

    It tells how far off two intervals are that don't overlap. An empty one is as far off as can be: -1.
    """
    if not length(one) or not length(other):
        return -1.0
    hull = max(one[1], other[1]) - min(one[0], other[0])
    distance = abs((one[0] - other[0]) / 2 + (one[1] - other[1]) / 2)
    return max(-1.0, iou(one, other) - _share(distance, hull) ** 2)


def merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """The seconds that any of some intervals covers, as intervals that don't touch, in order."""
    found: list[Interval] = []
    for start, end in sorted(interval for interval in intervals if length(interval)):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return tuple(found)


def total(intervals: Iterable[Interval]) -> float:
    """Seconds that any of some intervals covers."""
    return math.fsum(map(length, merged(intervals)))


def set_overlap(one: Iterable[Interval], other: Iterable[Interval]) -> float:
    """Seconds that both of two sets cover."""
    left, right = merged(one), merged(other)
    common, first, second = [], 0, 0
    while first < len(left) and second < len(right):
        common.append(overlap(left[first], right[second]))
        if left[first][1] <= right[second][1]:
            first += 1
        else:
            second += 1
    return math.fsum(common)


def set_iou(one: Iterable[Interval], other: Iterable[Interval]) -> float:
    """Intersection over union of two sets, 0 to 1."""
    left, right = merged(one), merged(other)
    return _share(set_overlap(left, right), total((*left, *right)))


def set_iop(predicted: Iterable[Interval], gold: Iterable[Interval]) -> float:
    """Share of the predicted seconds that are gold."""
    spans = merged(predicted)
    return _share(set_overlap(spans, gold), total(spans))


def set_iog(predicted: Iterable[Interval], gold: Iterable[Interval]) -> float:
    """Share of the gold seconds that are predicted."""
    spans = merged(gold)
    return _share(set_overlap(predicted, spans), total(spans))


def set_diou(one: Iterable[Interval], other: Iterable[Interval]) -> float:
    """Distance IoU of two sets, -1 to 1: their IoU less :func:`diou`'s term for the stretches from the start of the
    first to the end of the last interval of each. An empty set is as far off as can be: -1."""
    left, right = merged(one), merged(other)
    if not left or not right:
        return -1.0
    ends = [(spans[0][0], spans[-1][1]) for spans in (left, right)]
    away = iou(*ends) - diou(*ends)
    return max(-1.0, set_iou(left, right) - away)


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if 0 < whole < math.inf else 0.0
