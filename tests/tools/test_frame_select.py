import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.tools.base import ToolError
from agentic_video.tools.frame_select import (
    MAX_BLOCK_CHARS,
    Selection,
    SelectLimits,
    SelectRequest,
    check_select,
    no_more_than,
    plan_selection,
    read_calls,
)
from agentic_video.video.index import VideoInfo

HD = VideoInfo(
    path="v",
    fps=25.0,
    num_frames=1500,
    duration=60.0,
    width=1280,
    height=720,
    rotation=0,
    variable_frame_rate=False,
    codec="none",
    pixel_format="rgb24",
    start_time=0.0,
)
FULL_HD = replace(HD, width=1920, height=1080)
LIMITS = SelectLimits(
    max_tokens=12_000,
    max_frames=256,
    max_short_side=720,
    max_resize=1.0,
    min_pixels=3_136,
    max_pixels=12_845_056,
    factor=28,
)


def ask(**changes: object) -> dict[str, object]:
    return {"start_time": 10, "end_time": 20, "nframes": 8, "resize": 0.5, **changes}


def plan(count: int, resize: float, info: VideoInfo = HD, limits: SelectLimits = LIMITS) -> Selection:
    return plan_selection(SelectRequest(0.0, 60.0, count, resize), info, limits)


def tokens(selection: Selection, factor: int = 28) -> int:
    return len(selection.times) * selection.size[0] * selection.size[1] // factor**2


def test_a_request_is_taken_as_it_is() -> None:
    assert check_select(ask(), HD) == SelectRequest(10.0, 20.0, 8, 0.5)
    assert check_select(ask(nframes=8.0, start_time=10.5), HD) == SelectRequest(10.5, 20.0, 8, 0.5)


def test_without_resize_the_size_is_the_original() -> None:
    assert check_select(ask(resize=None), HD).resize == 1.0
    assert check_select({"start_time": 1, "end_time": 2, "nframes": 1}, HD).resize == 1.0


def test_the_window_is_clamped_to_the_video() -> None:
    assert check_select(ask(start_time=-5, end_time=1e308), HD) == SelectRequest(0.0, 60.0, 8, 0.5)


def test_no_more_frames_than_the_window_has() -> None:
    # 0.2 s at 25 fps: frames at 10.00, 10.04, ... 10.20
    assert check_select(ask(end_time=10.2, nframes=100), HD).count == 6
    assert check_select(ask(end_time=10, nframes=100), HD).count == 1
    assert check_select(ask(nframes=1e300), HD).count == 251


def test_a_last_frame_that_stays_on_for_long_is_one_frame() -> None:
    long = replace(HD, duration=100.0)  # its 1500 frames are shown from 0 to 59.96 s
    assert check_select(ask(start_time=58, end_time=90, nframes=100), long).count == 51
    assert check_select(ask(start_time=70, end_time=90, nframes=100), long).count == 1


def test_positions_give_the_number_of_frames_at_a_variable_rate() -> None:
    varying = replace(HD, variable_frame_rate=True)
    request = check_select(ask(nframes=100, end_time=10.2), varying)
    assert request.count == 100
    # frames 4, 5 and 6 lie between 3.5 and 6; none between two places that are both between the same frames
    assert no_more_than(request, 3.5, 6.0).count == 3
    assert no_more_than(request, 3.5, 3.5).count == 1
    assert check_select(ask(nframes=1e300), varying).count == 1500


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"start_time": None}, "start_time must be a number"),
        ({"end_time": math.nan}, "finite"),
        ({"end_time": 10**400}, "too large"),
        ({"start_time": 21}, "after end_time"),
        ({"start_time": 60, "end_time": 70}, "outside the video"),
        ({"start_time": -9, "end_time": -1}, "outside the video"),
        ({"nframes": None}, "nframes must be a number"),
        ({"nframes": 0}, "whole number"),
        ({"nframes": 2.5}, "whole number"),
        ({"resize": 0}, "above 0"),
        ({"resize": -1}, "above 0"),
    ],
)
def test_illegal_requests_say_why(changes: dict, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        check_select(ask(**changes), HD)


# HD lasts 60 s: reversed, of no length, and outside on either side
EMPTY = [(20, 10), (10, 10), (60, 70), (90, 80), (-9, -1), (-9, 0)]


@pytest.mark.parametrize(("start", "end"), EMPTY)
def test_an_empty_window_may_be_the_whole_video(start: float, end: float) -> None:
    request = check_select(ask(start_time=start, end_time=end), HD, "whole_video")
    assert request == SelectRequest(0.0, 60.0, 8, 0.5)


def test_frames_are_spread_over_the_window_with_both_ends() -> None:
    assert plan(4, 0.5).times == (0.0, 20.0, 40.0, 60.0)


def test_a_single_frame_is_the_middle_one() -> None:
    assert plan(1, 0.5).times == (30.0,)


def test_resize_multiplies_both_sides() -> None:
    # 640 / 28 = 22.9 and 360 / 28 = 12.9: rounded to 23 and 13 times 28
    assert plan(16, 0.5).size == (644, 364)
    assert plan(1, 1.0).size == (1288, 728)


def test_more_than_the_original_size_is_not_shown() -> None:
    assert plan(1, 5.0) == plan(1, 1.0)
    assert plan(1, 1e308) == plan(1, 1.0)


# Sides in squares of 28 pixels, of 1280 x 720: 45.7 x 25.7, so 46 x 26; of 1920 x 1080: 68.6 x 38.6, so 69 x 39


def test_over_the_budget_frames_and_scale_shrink_together() -> None:
    # 64 * 46 * 26 = 76544 tokens, so both shrink by (12000 / 76544) ** (1 / 3) = 0.5392:
    # int(34.5) frames of 690 x 388, to the nearest multiples of 28
    selection = plan(64, 1.0)
    assert (len(selection.times), selection.size) == (34, (700, 392))
    assert tokens(selection) == 11_900


def test_over_the_budget_the_short_side_is_reduced_first() -> None:
    # 8 * 69 * 39 = 21528 tokens; at 720p 9568, which fits with all eight frames
    selection = plan(8, 1.0, FULL_HD)
    assert (len(selection.times), selection.size) == (8, (1288, 728))


def test_that_enlarges_no_frame() -> None:
    # a picture of 360 pixels' height isn't enlarged to 720: 640 x 360 are 23 x 13 squares, 50 of them 14950 tokens, so
    # both shrink by 0.9293: int(46.5) frames of 595 x 335
    small = replace(HD, width=640, height=360)
    selection = plan(50, 1.0, small, replace(LIMITS, max_resize=2.0))
    assert (len(selection.times), selection.size) == (46, (588, 336))
    # 26 of twice the size, 46 * 26 squares each, are 31096 tokens, at the original size 7774
    assert plan(26, 2.0, small, replace(LIMITS, max_resize=2.0)).size == (644, 364)


def test_frames_and_scale_shrink_after_the_short_side() -> None:
    # 24 * 69 * 39 = 64584 tokens, at 720p 24 * 46 * 26 = 28704: both shrink by 0.7477 from there, to int(17.9) frames
    # of 957 x 538, which are 34.2 x 19.2 squares
    selection = plan(24, 1.0, FULL_HD)
    assert (len(selection.times), selection.size) == (17, (952, 532))


def test_the_estimate_is_of_rounded_sides() -> None:
    # 320 x 180 is 11.4 x 6.4 squares, so 66 tokens, not 73.5: 170 frames are 11220 and shown as asked
    selection = plan(170, 0.25)
    assert (len(selection.times), selection.size) == (170, (308, 168))
    # 200 frames are 13200: both shrink by 0.9687, to int(193.7) frames of 310 x 174
    selection = plan(200, 0.25)
    assert (len(selection.times), selection.size) == (193, (308, 168))
    # which is over the budget again, as the sides are rounded to the same multiples: so it is in the released code
    assert tokens(selection) == 12_738


def test_a_single_frame_is_within_the_budget_after_rounding_too() -> None:
    # 56 x 56 shrinks by (3 / 4) ** (1 / 3) to 50.9, which would round to 56 again: four tokens
    limits = replace(LIMITS, max_tokens=3, min_pixels=784)
    assert plan(1, 1.0, replace(HD, width=56, height=56), limits).size == (28, 28)


@pytest.mark.parametrize(("width", "height"), [(2560, 100), (8000, 45), (45, 8000)])
def test_what_can_t_become_smaller_leaves_the_budget_to_the_number_of_frames(width: int, height: int) -> None:
    narrow = replace(HD, width=width, height=height)
    assert tokens(plan(256, 0.5, narrow)) <= LIMITS.max_tokens
    large = replace(LIMITS, max_tokens=1_000, min_pixels=100_352)
    assert tokens(plan(256, 1.0, HD, large)) <= 1_000


def test_a_tiny_resize_keeps_the_least_size_and_the_shape() -> None:
    # 3136 pixels at 16:9 are 74.7 x 42
    assert plan(4, 1e-300) == plan(4, 0.0001)
    assert plan(4, 1e-300).size in ((84, 56), (84, 28), (56, 56))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"max_tokens": 3}, "can't show"),
        ({"max_frames": 0}, "max_frames"),
        ({"max_resize": 0.0}, "max_resize"),
        ({"max_resize": math.nan}, "max_resize"),
        ({"max_pixels": 100}, "max_pixels"),
    ],
)
def test_impossible_limits_are_refused(changes: dict, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        replace(LIMITS, **changes)


CALL = '{"tool": "frame_select", "arguments": {"start_time": 1}}'
READ = ("frame_select", {"start_time": 1})


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (CALL, 1),
        (f"\n {CALL}\n", 1),
        (CALL.replace("arguments", "parameters"), 1),
        (f"{CALL}\n{CALL}", 2),
        (f"{CALL}, {CALL}", 2),
        (f"[{CALL}, {CALL}]", 2),
    ],
)
def test_one_object_or_several(text: str, count: int) -> None:
    assert read_calls(text) == [READ] * count


def test_nothing_but_known_names_and_numbers_is_kept() -> None:
    text = '{"tool": "\\ud800", "arguments": {"start_time": 1, "\\ud800": "\\ud800", "x": [[]], "resize": null}}'
    assert read_calls(text) == [("unknown", {"start_time": 1, "resize": None})]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "7",
        f"[[{CALL}]]",
        CALL + "}",
        CALL + " and",
        "{}",
        '{"tool": "frame_select"}',
        '{"tool": 1, "arguments": {}}',
        '{"tool": "frame_select", "arguments": [1]}',
        '{"tool": "frame_select", "arguments": {"start_time": NaN}}',
        '{"tool": "frame_select", "arguments": {"start_time": "1"}}',
        '{"tool": "frame_select", "arguments": {"start_time": {"start_time": 1}}}',
        "[" * 3_000,
        " " * MAX_BLOCK_CHARS + CALL,
        "x" * 10**6,
        '{"tool":' * 400,
    ],
)
def test_anything_else_is_no_call(text: str) -> None:
    with pytest.raises(ToolError):
        read_calls(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
numbers = st.integers(-5, 10**6) | st.floats(-1.0, 1e6) | json_values


@given(
    st.fixed_dictionaries(dict.fromkeys(("start_time", "end_time", "nframes", "resize"), numbers)),
    st.floats(0.1, 1e5),
    st.integers(36, 4_000),
    st.floats(0.25, 4.0),
    st.integers(100, 20_000),
)
def test_whatever_is_asked_keeps_the_limits(
    arguments: dict, duration: float, width: int, ratio: float, max_tokens: int
) -> None:
    info = replace(HD, duration=duration, width=width, height=max(1, round(width * ratio)))
    try:
        request = check_select(json.loads(json.dumps(arguments)), info)
    except ToolError:
        return
    selection = plan_selection(request, info, replace(LIMITS, max_tokens=max_tokens, max_frames=16))
    assert 1 <= len(selection.times) <= min(16, request.count)
    assert all(0.0 <= time <= duration for time in selection.times)
    assert selection.size[0] % 28 == selection.size[1] % 28 == 0
    # Sides of several frames may be rounded up, at worst from 1.5 squares to 2 where the estimate took 2.5 for 2.
    assert 0 < tokens(selection) <= max_tokens * (1 if len(selection.times) == 1 else (2.5 / 1.5) ** 2)


@given(
    st.text(max_size=200) | st.lists(st.sampled_from([CALL, "{", "}", "[", "]", ",", '"', "1e999", "x"])).map("".join)
)
def test_reading_never_fails_otherwise(text: str) -> None:
    try:
        calls = read_calls(text)
    except ToolError:
        return
    assert calls and all(isinstance(name, str) for name, _ in calls)
