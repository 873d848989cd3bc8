"""Samplers: worked by hand, and properties."""

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.video.sampling import (
    floored_indices,
    floored_span,
    linspace_times,
    nearest_indices,
    rate_times,
    snapped_indices,
    spread_indices,
    stepped_indices,
    uniform_indices,
)

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


def test_released_rules_worked_by_hand() -> None:
    # linspace(0, 9, 3) = 0, 4.5, 9; linspace(0, 599, 6) = 0, 119.8, 239.6, 359.4, 479.2, 599
    assert floored_indices(10, 3) == [0, 4, 9]
    assert floored_indices(600, 6) == [0, 119, 239, 359, 479, 599]
    assert floored_indices(3, 8) == [0, 1, 2]
    assert floored_indices(100, 1) == [0]
    assert spread_indices(600, 6, "released") == floored_indices(600, 6)
    assert spread_indices(600, 6, "nearest") == uniform_indices(600, 6) == [0, 120, 240, 359, 479, 599]
    # 29.97 / 0.5 = 59.94, 23.976 / 0.5 = 47.952, 12.5 / 5 = 2.5 (to even), 10 / 60 is less than a frame
    assert list(stepped_indices(300, 29.97, 0.5)) == [0, 60, 120, 180, 240]
    assert list(stepped_indices(240, 23.976, 0.5)) == [0, 48, 96, 144, 192]
    assert list(stepped_indices(7, 12.5, 5)) == [0, 2, 4, 6]
    assert list(stepped_indices(3, 10, 60)) == [0, 1, 2]
    assert list(stepped_indices(3, 10, 1e-320)) == [0]
    # 2 s and 4 s at 29.97: numbers 59.94 and 119.88; at 23.976, 1 s and 3 s: 23.976 and 71.928
    assert floored_span(2, 4, 4, 29.97, 300) == [59, 79, 99, 119]
    assert floored_span(1, 3, 4, 23.976, 240) == [23, 39, 55, 71]
    assert floored_span(1, 2.5, 3, 29.97, 300) == [29, 51, 74]  # 29.97, 74.925; in the middle 51.5
    # 239.76 and 299.7, which is beyond the last frame: linspace(239, 298, 4) = 239, 258.67, 278.33, 298
    assert floored_span(8, 10, 4, 29.97, 299) == [239, 258, 278, 298]
    assert floored_span(1, 1.02, 3, 25, 300) == [25, 25, 25]
    assert floored_span(2, 4, 1, 29.97, 300) == [59]
    assert floored_span(0, 0.3, 2, 10, 300) == [0, 3]
    assert 2.3 * 100 < 230 and floored_span(0, 2.3, 2, 100, 300) == [0, 230], "a rounding error cuts nothing off"


@given(st.floats(0, 500), st.floats(0, 50), st.integers(1, 64), st.floats(1, 120))
def test_a_floored_span_lies_at_most_two_frames_before_the_times(
    start: float, length: float, count: int, video_fps: float
) -> None:
    end, num_frames = start + length, int((start + length) * video_fps) + 1
    found = floored_span(start, end, count, video_fps, num_frames)
    assert found == sorted(found) and found[0] >= 0 and found[-1] < num_frames
    for index, time in zip(found, linspace_times(start, end, count), strict=True):
        assert -1e-4 <= time * video_fps - index < 2 + 1e-4


@given(st.integers(1, 10_000), st.floats(1, 120), st.floats(0.01, 200))
def test_steps_are_whole_and_close_to_the_rate(frames: int, video_fps: float, fps: float) -> None:
    steps = list(stepped_indices(frames, video_fps, fps))
    assert steps[0] == 0 and steps[-1] < frames
    gaps = set(np.diff(steps).tolist())
    assert len(gaps) <= 1 and all(gap == 1 or abs(gap - video_fps / fps) <= 0.5 for gap in gaps)


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
    for call in (
        lambda: uniform_indices(bad, 4),
        lambda: floored_indices(4, bad),
        lambda: linspace_times(0, 1, bad),
        lambda: floored_span(0, 1, bad, 10, 100),
    ):
        with pytest.raises(ValueError, match=r"num_frames|count"):
            call()


@pytest.mark.parametrize("bad", BAD)
def test_bad_times(bad: float) -> None:
    calls = (
        lambda: rate_times(bad, 1),
        lambda: rate_times(10, bad),
        lambda: linspace_times(bad, 5, 3),
        lambda: nearest_indices([0.0, 1.0], [bad]),
        lambda: stepped_indices(100, 10, bad),
        lambda: floored_span(0, bad, 3, 10, 100),
    )
    for call in calls:
        with pytest.raises(ValueError):
            call()


def test_requests_that_make_no_sense() -> None:
    for call in (
        lambda: rate_times(10, 0),
        lambda: rate_times(1e9, 1e9),
        lambda: linspace_times(3, 2, 2),
        lambda: nearest_indices([], [1.0]),
        lambda: nearest_indices([1.0, 0.0], [1.0]),
        lambda: nearest_indices([0.0, math.nan], [1.0]),
    ):
        with pytest.raises(ValueError):
            call()


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
    near = [anchor for anchor in cheap if min(asked) - 12 <= anchor <= max(asked) + 12][:14]
    if len(near) >= len(asked):
        least = min(
            sum(abs(a - b) for a, b in zip(asked, chosen, strict=True)) for chosen in combinations(near, len(asked))
        )
        assert sum(abs(a - b) for a, b in zip(asked, moved, strict=True)) <= least
