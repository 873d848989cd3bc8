import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.tools.base import ToolError
from agentic_video.tools.video_zoom import ZoomRequest, check_zoom


def test_frames_are_the_whole_part_of_rate_times_length() -> None:
    # int(2 * (43 - 41)) = 4; int(1.9 * 4) = 7; int(0.5 * 3) = 1
    assert check_zoom({"segment": [41, 43], "fps": 2}, 60.0, 16) == ZoomRequest(41.0, 43.0, 4)
    assert check_zoom({"segment": [0, 4.0], "fps": 1.9}, 60.0, 16).count == 7
    assert check_zoom({"segment": [0, 3], "fps": 0.5}, 60.0, 16).count == 1


def test_segment_is_clamped_to_the_video() -> None:
    assert check_zoom({"segment": [-5, 4], "fps": 2}, 60.0, 16) == ZoomRequest(0.0, 4.0, 8)
    assert check_zoom({"segment": [56, 1e308], "fps": 2}, 60.0, 16) == ZoomRequest(56.0, 60.0, 8)


def test_sixteen_frames_pass_and_seventeen_do_not() -> None:
    assert check_zoom({"segment": [0, 8], "fps": 2}, 60.0, 16).count == 16
    assert check_zoom({"segment": [0, 8], "fps": 2.1}, 60.0, 16).count == 16  # int(16.8)
    with pytest.raises(ToolError, match="more than 16"):
        check_zoom({"segment": [0, 8.5], "fps": 2}, 60.0, 16)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "segment must be"),
        ({"segment": "1,2", "fps": 1}, "segment must be"),
        ({"segment": [1, 2, 3], "fps": 1}, "segment must be"),
        ({"segment": [1, None], "fps": 1}, "must be a number"),
        ({"segment": [True, 2], "fps": 1}, "must be a number"),
        ({"segment": ["1", "2"], "fps": 1}, "must be a number"),
        ({"segment": [5, 5], "fps": 1}, "empty"),
        ({"segment": [9, 5], "fps": 1}, "empty"),
        ({"segment": [70, 80], "fps": 1}, "empty"),
        ({"segment": [1, 2]}, "fps must be a number"),
        ({"segment": [1, 2], "fps": 0}, "above 0"),
        ({"segment": [1, 2], "fps": -3}, "above 0"),
        ({"segment": [1, 2], "fps": 1e308}, "more than 16"),
        ({"segment": [0, 60], "fps": 10**400}, "too large"),
        ({"segment": [0, math.inf], "fps": 1}, "finite"),
        ({"segment": [1, 2], "fps": math.nan}, "finite"),
        ({"segment": [1, 2], "fps": 0.5}, "less than one frame"),
    ],
)
def test_illegal_requests_say_why(arguments: dict, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        check_zoom(arguments, 60.0, 16)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["segment", "fps", "x"]), json_values), st.floats(0.1, 1e5))
def test_whatever_is_asked_at_most_the_allowed_frames_are_granted(arguments: dict, duration: float) -> None:
    try:
        request = check_zoom(json.loads(json.dumps(arguments)), duration, 16)
    except ToolError:
        return
    assert 1 <= request.count <= 16
    assert 0.0 <= request.start < request.end <= duration
