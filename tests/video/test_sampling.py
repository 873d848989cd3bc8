"""Samplers: worked by hand, and their promises on anything."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.video.sampling import linspace_times, nearest_indices, rate_times, snapped_indices, uniform_indices

BAD = [float("nan"), float("inf"), -1.0]


def test_worked_by_hand() -> None:
    assert uniform_indices(10, 4) == [0, 3, 6, 9]
    assert uniform_indices(10, 3) == [0, 4, 9]  # 4.5 rounds to even
    assert uniform_indices(3, 8) == [0, 1, 2]
    assert uniform_indices(100, 1) == [0]
    assert rate_times(2.0, 2) == [0.0, 0.5, 1.0, 1.5]
    assert rate_times(2.1, 2) == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert rate_times(0.0, 1) == []
    assert rate_times(5.0, 0.5) == [0.0, 2.0, 4.0]
    assert linspace_times(1.0, 3.0, 3) == [1.0, 2.0, 3.0]
    assert linspace_times(1.0, 3.0, 1) == [1.0]
    assert linspace_times(2.0, 2.0, 2) == [2.0, 2.0]
    assert nearest_indices([0.0, 1.0, 1.5, 4.0], [0.5, 0.51, 1.25, 1.3, 99.0, 0.0, 2.75]) == [0, 1, 1, 2, 3, 0, 2]
    assert nearest_indices([0.0, 1.0, 1.0, 2.0], [1.0, 1.6]) == [1, 3]
    assert nearest_indices([0.0], []) == []


@given(st.integers(1, 100_000), st.integers(1, 300))
def test_uniform_indices_promises(frames: int, count: int) -> None:
    indices = uniform_indices(frames, count)
    assert len(indices) == min(frames, count)
    assert all(a < b for a, b in pairwise(indices))
    assert indices[0] == 0 and (count == 1 or indices[-1] == frames - 1)
    steps = np.diff(indices)
    assert steps.size == 0 or np.ptp(steps) <= 1


@given(st.floats(0, 500), st.floats(0.01, 60))
def test_rate_times_promises(duration: float, fps: float) -> None:
    times = rate_times(duration, fps)
    assert times == [index / fps for index in range(len(times))]
    assert all(time < duration for time in times)
    assert len(times) / fps >= duration


# Multiples of 1/16, so that differences are exact and ties are ties.
TIME = st.integers(0, 10**6).map(lambda sixteenths: sixteenths / 16)


@given(st.lists(TIME, min_size=1, max_size=50), st.lists(TIME, max_size=20))
def test_nearest_indices_are_nearest_and_earliest(stamps: list[float], times: list[float]) -> None:
    stamps = sorted(stamps)
    for time, index in zip(times, nearest_indices(stamps, times), strict=True):
        distances = [abs(time - stamp) for stamp in stamps]
        assert index == distances.index(min(distances))


@pytest.mark.parametrize("bad", [*BAD, 0, 1.5, 10**18])
def test_bad_counts(bad: float) -> None:
    for call in (lambda: uniform_indices(bad, 4), lambda: uniform_indices(4, bad), lambda: linspace_times(0, 1, bad)):
        with pytest.raises(ValueError, match=r"num_frames|count"):
            call()


@pytest.mark.parametrize("bad", BAD)
def test_bad_times(bad: float) -> None:
    calls = (
        lambda: rate_times(bad, 1),
        lambda: rate_times(10, bad),
        lambda: linspace_times(bad, 5, 3),
        lambda: linspace_times(0, bad, 3),
        lambda: nearest_indices([0.0, 1.0], [bad]),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"finite|negative|positive"):
            call()


def test_other_bad_input() -> None:
    with pytest.raises(ValueError, match="positive"):
        rate_times(10, 0)
    with pytest.raises(ValueError, match="more than"):
        rate_times(1e9, 1e9)
    with pytest.raises(ValueError, match="before"):
        linspace_times(3, 2, 2)
    with pytest.raises(ValueError, match="non-empty"):
        nearest_indices([], [1.0])
    with pytest.raises(ValueError, match="sorted"):
        nearest_indices([1.0, 0.0], [1.0])
    with pytest.raises(ValueError, match="finite"):
        nearest_indices([0.0, math.nan], [1.0])


def test_wanted_frames_move_to_the_closest_anchor() -> None:
    assert snapped_indices([0, 50, 100, 150], [0, 85, 120]) == [0, 100, 150]  # both are closest to 100
    assert snapped_indices([0, 50, 100, 150], [0, 60, 140]) == [0, 50, 150]
    assert snapped_indices([0, 50, 100], [25]) == [0]  # of two equally close ones the earlier
    assert snapped_indices([0, 50], [0, 30, 60]) == [0, 30, 60]  # too few
    assert snapped_indices([0, 50], []) == []


@given(st.sets(st.integers(0, 40), min_size=1), st.sets(st.integers(0, 40), min_size=1, max_size=5))
def test_moved_frames_are_distinct_anchors_with_the_least_sum_of_moves(anchors: set[int], wanted: set[int]) -> None:
    cheap, asked = sorted(anchors), sorted(wanted)
    moved = snapped_indices(cheap, asked)
    if len(cheap) < len(asked):
        assert moved == asked
        return
    assert len(moved) == len(asked) and moved == sorted(set(moved)) and set(moved) <= anchors
    near = [one for one in cheap if min(asked) - 12 <= one <= max(asked) + 12][:14]
    if len(near) >= len(asked):
        least = min(
            sum(abs(a - b) for a, b in zip(asked, chosen, strict=True)) for chosen in combinations(near, len(asked))
        )
        assert sum(abs(a - b) for a, b in zip(asked, moved, strict=True)) <= least
