"""``seek_video_frames``: what is forgiven, what is refused, which frames are searched."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.tools.base import ToolError
from agentic_video.tools.seek_video_frames import SeekRequest, check_seek, pool_indices, within

DURATION = 60.0


def seek(**arguments: Any) -> SeekRequest:
    return check_seek(arguments, DURATION, 8, 100)


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        ({"query": " a red car "}, SeekRequest("a red car", 0.0, 60.0, 8)),
        ({}, SeekRequest("", 0.0, 60.0, 8)),
        ({"query": None, "start_time": None, "end_time": None, "num_frames": None}, SeekRequest("", 0.0, 60.0, 8)),
        ({"start_time": 10, "end_time": 20.5, "num_frames": 3}, SeekRequest("", 10.0, 20.5, 3)),
        # a number of frames beyond the limits is the nearest within
        ({"num_frames": 0}, SeekRequest("", 0.0, 60.0, 1)),
        ({"num_frames": -4}, SeekRequest("", 0.0, 60.0, 1)),
        ({"num_frames": 10**30}, SeekRequest("", 0.0, 60.0, 8)),
        ({"num_frames": 3.9}, SeekRequest("", 0.0, 60.0, 3)),
        # numbers as text, and what is none (defaults)
        ({"start_time": "10", "end_time": "20"}, SeekRequest("", 10.0, 20.0, 8)),
        ({"start_time": "soon", "end_time": "nan", "num_frames": "all"}, SeekRequest("", 0.0, 60.0, 8)),
        ({"start_time": True, "end_time": False, "num_frames": True}, SeekRequest("", 0.0, 60.0, 8)),
        ({"end_time": 10**400}, SeekRequest("", 0.0, 60.0, 8)),
        # clamped to the video
        ({"start_time": -5, "end_time": 9_999}, SeekRequest("", 0.0, 60.0, 8)),
        ({"start_time": 60}, SeekRequest("", 60.0, 60.0, 8)),
        ({"start_time": 7, "end_time": 7}, SeekRequest("", 7.0, 7.0, 8)),
        ({"query": 5}, SeekRequest("5", 0.0, 60.0, 8)),
    ],
)
def test_what_is_forgiven(arguments: dict[str, Any], request_: SeekRequest) -> None:
    assert seek(**arguments) == request_


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"start_time": 60.1}, "outside the video, which lasts 60.0 seconds"),
        # Python would count a negative end from the video's: nearly all of it
        ({"end_time": -1}, "outside the video"),
        ({"start_time": 20, "end_time": 10}, "start_time is after end_time"),
        ({"query": "x" * 101}, "at most 100 characters"),
        ({"query": "\ud800"}, "valid text"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        seek(**arguments)


@pytest.mark.parametrize(
    ("num_frames", "duration", "most", "count"),
    [
        (600, 60.0, 2_048, 120),  # two a second
        (36_000, 3_600.0, 2_048, 2_048),  # 7,200 are too many
        (10, 1.0, 2_048, 4),  # not less than four
        (3, 0.3, 2_048, 3),  # all there are
        (600, 60.9, 2_048, 121),  # rounded down
    ],
)
def test_how_many_frames_are_searched(num_frames: int, duration: float, most: int, count: int) -> None:
    pool = pool_indices(num_frames, duration, 2.0, most)
    assert (len(pool), pool[0], pool[-1]) == (count, 0, num_frames - 1)
    assert pool == sorted(set(pool))


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (0.0, 60.0, [0, 10, 20, 30, 40]),
        (1.0, 2.0, [10, 20]),  # both are frames of the pool
        (1.1, 1.9, [10, 20]),  # the nearest one on each side
        (1.1, 2.1, [10, 20, 30]),
        (1.5, 1.5, [10, 20]),
        (2.0, 2.0, [20]),
        (4.5, 9.0, [40]),  # behind the last one
    ],
)
def test_which_of_them_lie_in_a_stretch(start: float, end: float, found: list[int]) -> None:
    assert within([0, 10, 20, 30, 40], start * 10, end * 10) == found


@given(st.integers(1, 500), st.floats(0, 100), st.floats(0, 100), st.floats(1, 60))
def test_no_stretch_is_empty(num_frames: int, one: float, other: float, fps: float) -> None:
    pool = pool_indices(num_frames, num_frames / fps, 2.0, 64)
    found = within(pool, min(one, other) * fps, max(one, other) * fps)
    assert found and set(found) <= set(pool)
    if min(one, other) <= 0 and max(one, other) >= num_frames / fps:
        assert found == pool
