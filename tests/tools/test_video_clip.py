import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.tools.base import ToolError
from agentic_video.tools.video_clip import ClipRequest, check_clip, clip_count


@pytest.mark.parametrize(
    ("seconds", "count"),
    [(0.1, 8), (4.0, 8), (4.4, 9), (5.0, 10), (7.5, 15), (10.0, 20), (3600.0, 20)],  # round(2 * seconds) in 8 .. 20
)
def test_longer_clips_get_more_frames(seconds: float, count: int) -> None:
    assert clip_count(seconds, 2.0, 8, 20) == count


def test_a_clip_keeps_its_ends() -> None:
    assert check_clip({"t_start": 41, "t_end": 43.5}, 60.0, 2.0, 8, 20) == ClipRequest(41.0, 43.5, 8)
    assert check_clip({"t_start": 0, "t_end": 60}, 60.0, 2.0, 8, 20) == ClipRequest(0.0, 60.0, 20)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "two arguments"),
        ({"t_start": 1}, "two arguments"),
        ({"t_start": 1, "t_end": 2, "fps": 3}, "two arguments"),
        ({"t_start": 1, "t_end": None}, "t_end must be a number"),
        ({"t_start": True, "t_end": 2}, "t_start must be a number"),
        ({"t_start": "1", "t_end": "2"}, "must be a number"),
        ({"t_start": [1, 2], "t_end": 3}, "must be a number"),
        ({"t_start": 0, "t_end": math.inf}, "finite"),
        ({"t_start": math.nan, "t_end": 2}, "finite"),
        ({"t_start": 0, "t_end": 10**400}, "too large"),
        ({"t_start": -1, "t_end": 2}, "t_start lies outside the video, which lasts 60.00 seconds"),
        ({"t_start": 50, "t_end": 61}, "t_end lies outside"),
        ({"t_start": 5, "t_end": 5}, "before"),
        ({"t_start": 9, "t_end": 5}, "before"),
    ],
)
def test_illegal_requests_say_why(arguments: dict, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        check_clip(arguments, 60.0, 2.0, 8, 20)


def test_a_clip_is_no_moment() -> None:
    assert check_clip({"t_start": 0, "t_end": 0.1}, 60.0, 2.0, 8, 20, shortest=0.1).count == 8
    for end in (1e-300, 0.09):
        with pytest.raises(ToolError, match=r"must last 0\.100 seconds at least"):
            check_clip({"t_start": 0, "t_end": end}, 60.0, 2.0, 8, 20, shortest=0.1)


@given(
    st.dictionaries(st.sampled_from(["t_start", "t_end"]), st.none() | st.booleans() | st.integers() | st.floats()),
    st.floats(0.01, 1e6),
)
def test_what_passes_keeps_the_limits(arguments: dict, duration: float) -> None:
    try:
        request = check_clip(arguments, duration, 2.0, 8, 20)
    except ToolError:
        return
    assert 0.0 <= request.start < request.end <= duration
    assert 8 <= request.count <= 20
