import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.tools.base import ToolError
from agentic_video.tools.frame_at import check_frame_at


def test_any_moment_of_the_video_is_legal() -> None:
    assert check_frame_at({"t": 42}, 60.0) == 42.0
    assert check_frame_at({"t": 0.0}, 60.0) == 0.0
    assert check_frame_at({"t": 60}, 60.0) == 60.0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "one argument"),
        ({"time": 3}, "one argument"),
        ({"t": 3, "u": 4}, "one argument"),
        ({"t": None}, "must be a number"),
        ({"t": "3"}, "must be a number"),
        ({"t": True}, "must be a number"),
        ({"t": [3]}, "must be a number"),
        ({"t": {"t": 3}}, "must be a number"),
        ({"t": math.nan}, "finite"),
        ({"t": math.inf}, "finite"),
        ({"t": 10**400}, "too large"),
        ({"t": -0.1}, "outside the video, which lasts 60.00 seconds"),
        ({"t": 60.1}, "outside the video"),
        ({"t": 1e308}, "outside the video"),
    ],
)
def test_illegal_requests_say_why(arguments: dict, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        check_frame_at(arguments, 60.0)


@given(st.dictionaries(st.sampled_from(["t", "x"]), st.none() | st.booleans() | st.integers() | st.floats()))
def test_what_passes_lies_in_the_video(arguments: dict) -> None:
    try:
        time = check_frame_at(arguments, 60.0)
    except ToolError:
        return
    assert 0.0 <= time <= 60.0
