import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.tools.base import ToolError
from agentic_video.tools.uniform_sample import check_uniform, frames_within, read_range, spread


def test_frames_are_evenly_spaced_and_the_end_is_excluded() -> None:
    # 8 of the frames 100 to 179: steps of 79 / 7 = 11.29, rounded
    arguments = {"start_frame": 100, "end_frame": 180}
    assert check_uniform(arguments, 600, 8) == [100, 111, 123, 134, 145, 156, 168, 179]


def test_an_end_beyond_the_video_is_clipped() -> None:
    assert frames_within({"start_frame": 590, "end_frame": 10**30}, 600) == range(590, 600)
    assert check_uniform({"start_frame": 592, "end_frame": 601}, 600, 8) == list(range(592, 600))


def test_the_last_frame_can_be_named() -> None:
    assert frames_within({"start_frame": 0, "end_frame": 600}, 600)[-1] == 599
    assert frames_within({"start_frame": 599, "end_frame": 600}, 600) == range(599, 600)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "start_frame must be an integer"),
        ({"start_frame": 1}, "end_frame must be an integer"),
        ({"start_frame": "1", "end_frame": 90}, "start_frame must be an integer"),
        ({"start_frame": 1.0, "end_frame": 90}, "start_frame must be an integer"),
        ({"start_frame": True, "end_frame": 90}, "start_frame must be an integer"),
        ({"start_frame": 1, "end_frame": float("nan")}, "end_frame must be an integer"),
        ({"start_frame": 1, "end_frame": None}, "end_frame must be an integer"),
        ({"start_frame": 90, "end_frame": 90}, "smaller"),
        ({"start_frame": 91, "end_frame": 90}, "smaller"),
        ({"start_frame": -1, "end_frame": 90}, "600 frames"),
        ({"start_frame": 600, "end_frame": 700}, "600 frames"),
        ({"start_frame": 10**30, "end_frame": 10**31}, "600 frames"),
        ({"start_frame": 10, "end_frame": 17}, "holds 7 frames, at least 8"),
        ({"start_frame": 593, "end_frame": 900}, "holds 7 frames, at least 8"),  # counted after clipping
    ],
)
def test_illegal_requests_say_why(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        check_uniform(arguments, 600, 8)


def test_a_range_is_read_without_the_video() -> None:
    assert read_range({"start_frame": -5, "end_frame": 10**9, "more": 1}) == (-5, 10**9)


def test_a_short_range_is_spread_to_all_of_its_frames() -> None:
    assert spread(range(7, 10), 128) == [7, 8, 9]
    assert spread(range(7, 107), 2) == [7, 106]


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers())


@given(st.dictionaries(st.sampled_from(["start_frame", "end_frame", "x"]), values), st.integers(1, 10**6))
def test_whatever_is_asked_exactly_the_allowed_frames_are_granted(arguments: dict[str, Any], total: int) -> None:
    try:
        indices = check_uniform(json.loads(json.dumps(arguments)), total, 8)
    except ToolError:
        return
    assert len(indices) == 8
    assert indices == sorted(set(indices))
    assert indices[0] >= 0
    assert indices[-1] < total
