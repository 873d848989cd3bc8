import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.tools.base import ToolError
from agentic_video.tools.crop_video import SCHEMA, CropLimits, CropRequest, check_crop

LIMITS = CropLimits()
CLAMPED = CropLimits(past_end="clamped")


@pytest.mark.parametrize(
    ("seconds", "count"),
    # one frame a second, cut to a whole number, in 1 .. 128
    [(1e-300, 1), (0.4, 1), (1.0, 1), (1.9, 1), (2.0, 2), (0.1 * 30, 3), (127.5, 127), (128.0, 128), (1e308, 128)],
)
def test_a_second_is_a_frame(seconds: float, count: int) -> None:
    assert LIMITS.count(seconds) == count


def test_the_rate_and_the_limits_are_the_systems() -> None:
    assert CropLimits(fps=2.0, min_frames=4, max_frames=16).count(1.0) == 4
    assert CropLimits(fps=2.0, min_frames=4, max_frames=16).count(3.0) == 6
    assert CropLimits(fps=2.0, min_frames=4, max_frames=16).count(60.0) == 16


@pytest.mark.parametrize(
    "broken", [{"fps": 0.0}, {"fps": math.nan}, {"fps": math.inf}, {"min_frames": 0}, {"min_frames": 129}]
)
def test_limits_that_no_crop_can_keep(broken: dict) -> None:
    with pytest.raises(ValueError, match="must be"):
        CropLimits(**broken)


def test_a_crop_keeps_its_ends() -> None:
    asked = {"video_path": "v.mp4", "start_time": 41, "end_time": 43.5}
    assert check_crop(asked, 60.0, LIMITS, ["v.mp4"]) == CropRequest(41.0, 43.5, 2)
    assert check_crop({**asked, "start_time": 0, "end_time": 60}, 60.0, LIMITS) == CropRequest(0.0, 60.0, 60)
    assert check_crop(asked, 60.0, LIMITS).interval == (41.0, 43.5)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "needs video_path"),
        ({"video_path": "v.mp4"}, "needs start_time"),
        ({"video_path": "v.mp4", "start_time": 1}, "needs end_time"),
        ({"video_path": "v.mp4", "start_time": None, "end_time": 2}, "needs start_time"),
        ({"video_path": "/etc/passwd", "start_time": 1, "end_time": 2}, "no video of this path"),
        ({"video_path": "", "start_time": 1, "end_time": 2}, "no video of this path"),
        ({"video_path": ["v.mp4"], "start_time": 1, "end_time": 2}, "no video of this path"),
        ({"video_path": "v.mp4", "start_time": "1", "end_time": 2}, "start_time must be a number"),
        ({"video_path": "v.mp4", "start_time": True, "end_time": 2}, "start_time must be a number"),
        ({"video_path": "v.mp4", "start_time": 1, "end_time": [2]}, "end_time must be a number"),
        ({"video_path": "v.mp4", "start_time": math.nan, "end_time": 2}, "finite"),
        ({"video_path": "v.mp4", "start_time": 0, "end_time": 10**400}, "too large"),
        ({"video_path": "v.mp4", "start_time": -0.1, "end_time": 2}, "below 0"),
        ({"video_path": "v.mp4", "start_time": 5, "end_time": 5}, "after start_time"),
        ({"video_path": "v.mp4", "start_time": 9, "end_time": 5}, "after start_time"),
        ({"video_path": "v.mp4", "start_time": 60, "end_time": 61}, "start_time lies outside .* 60.00 seconds"),
        ({"video_path": "v.mp4", "start_time": 50, "end_time": 60.1}, "end_time lies outside .* 60.00 seconds"),
    ],
)
def test_illegal_requests_say_why(arguments: dict, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        check_crop(arguments, 60.0, LIMITS, ["v.mp4"])


def test_an_end_behind_the_videos_may_be_clamped() -> None:
    assert check_crop({"start_time": 50, "end_time": 1e9}, 60.0, CLAMPED) == CropRequest(50.0, 60.0, 10)
    with pytest.raises(ToolError, match="start_time lies outside"):
        check_crop({"start_time": 60, "end_time": 70}, 60.0, CLAMPED)


def test_the_schema_names_what_is_checked() -> None:
    function = SCHEMA["function"]
    assert function["name"] == "crop_video"
    assert tuple(function["parameters"]["properties"]) == ("video_path", "start_time", "end_time")
    assert function["parameters"]["required"] == ["video_path", "start_time", "end_time"]


@given(
    st.dictionaries(
        st.sampled_from(["video_path", "start_time", "end_time"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    ),
    st.floats(0.01, 1e6),
    st.sampled_from([LIMITS, CLAMPED]),
)
def test_what_passes_keeps_the_limits(arguments: dict, duration: float, limits: CropLimits) -> None:
    try:
        request = check_crop(arguments, duration, limits)
    except ToolError:
        return
    assert 0.0 <= request.start < request.end <= duration
    assert 1 <= request.count <= 128
