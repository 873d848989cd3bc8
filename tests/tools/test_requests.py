"""Requests of the tools that look at a stretch or a moment: legal ones, illegal ones, and limits for hostile ones."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.tools import (
    choose_frames,
    clip_sample,
    crop_video,
    frame_at,
    frame_number,
    ground_segment,
    uniform_sample,
    video_clip,
    video_zoom,
)
from agentic_video.tools import seek_video_frames as seek
from agentic_video.tools.base import ToolError
from agentic_video.tools.crop_video import CropLimits, CropRequest
from agentic_video.tools.ground_segment import GroundRequest, frame_count, json_errors, read_grounding
from agentic_video.tools.seek_video_frames import SeekRequest, pool_indices, within
from agentic_video.tools.video_clip import ClipRequest, clip_count
from agentic_video.tools.video_zoom import ZoomRequest

DURATION, FRAMES = 60.0, 600
LIMITS, CLAMPED = CropLimits(), CropLimits(past_end="clamped")
GOOD = '{"temporal_segment": [1, 3], "sampling_strategy": "fine"}'


def zoom(arguments: Mapping[str, Any]) -> ZoomRequest:
    return video_zoom.check_zoom(arguments, DURATION, 16)


def crop(arguments: Mapping[str, Any], limits: CropLimits = LIMITS) -> CropRequest:
    return crop_video.check_crop(arguments, DURATION, limits)


def named_crop(arguments: Mapping[str, Any]) -> CropRequest:
    return crop_video.check_crop(arguments, DURATION, LIMITS, ["v.mp4"])


def moment(arguments: Mapping[str, Any]) -> float:
    return frame_at.check_frame_at(arguments, DURATION)


def clip(arguments: Mapping[str, Any]) -> ClipRequest:
    return video_clip.check_clip(arguments, DURATION, 2.0, 8, 20, shortest=0.1)


def ground(arguments: Mapping[str, Any]) -> GroundRequest:
    return ground_segment.check_grounding(arguments, DURATION)


def uniform(arguments: Mapping[str, Any]) -> list[int]:
    return uniform_sample.check_uniform(arguments, FRAMES, 8)


def search(arguments: Mapping[str, Any], candidates: int = 128) -> clip_sample.SearchRequest:
    return clip_sample.check_clip(arguments, FRAMES, candidates=candidates, max_prompt_chars=20)


def choose(arguments: Mapping[str, Any]) -> list[int]:
    return choose_frames.chosen_indices(arguments, FRAMES, 8)


def lookup(arguments: Mapping[str, Any]) -> int:
    return frame_number.number_at(arguments, 10.0)


def seeking(arguments: Mapping[str, Any]) -> SeekRequest:
    return seek.check_seek(arguments, DURATION, 8, 100)


def between(start: Any = 0, end: Any = 600, prompt: Any = "a red umbrella") -> dict[str, Any]:
    return {"start_frame": start, "end_frame": end, "prompt": prompt}


@pytest.mark.parametrize(
    ("check", "arguments", "request_"),
    [
        # int(2 * (43 - 41)) = 4; int(1.9 * 4) = 7; int(0.5 * 3) = 1; int(2.1 * 8) = 16
        (zoom, {"segment": [41, 43], "fps": 2}, ZoomRequest(41.0, 43.0, 4)),
        (zoom, {"segment": [0, 4.0], "fps": 1.9}, ZoomRequest(0.0, 4.0, 7)),
        (zoom, {"segment": [0, 3], "fps": 0.5}, ZoomRequest(0.0, 3.0, 1)),
        (zoom, {"segment": [0, 8], "fps": 2.1}, ZoomRequest(0.0, 8.0, 16)),
        (zoom, {"segment": [-5, 4], "fps": 2}, ZoomRequest(0.0, 4.0, 8)),  # clamped to the video
        (zoom, {"segment": [56, 1e308], "fps": 2}, ZoomRequest(56.0, 60.0, 8)),
        (named_crop, {"video_path": "v.mp4", "start_time": 41, "end_time": 43.5}, CropRequest(41.0, 43.5, 2)),
        (crop, {"start_time": 0, "end_time": 60}, CropRequest(0.0, 60.0, 60)),
        (lambda asked: crop(asked, CLAMPED), {"start_time": 50, "end_time": 1e9}, CropRequest(50.0, 60.0, 10)),
        (moment, {"t": 42}, 42.0),
        (moment, {"t": 0.0}, 0.0),
        (moment, {"t": 60}, 60.0),
        (clip, {"t_start": 41, "t_end": 43.5}, ClipRequest(41.0, 43.5, 8)),
        (clip, {"t_start": 0, "t_end": 60}, ClipRequest(0.0, 60.0, 20)),
        (clip, {"t_start": 0, "t_end": 0.1}, ClipRequest(0.0, 0.1, 8)),
        (ground, {"temporal_segment": [1, 3], "sampling_strategy": "coarse"}, GroundRequest(1, 3, "coarse")),
        (ground, {"temporal_segment": [-5, 3.5], "sampling_strategy": "fine"}, GroundRequest(0, 3.5, "fine")),
        (ground, {"temporal_segment": [59, 99], "sampling_strategy": "fine"}, GroundRequest(59, 60, "fine")),
        # 8 of the frames 100 to 179: steps of 79 / 7 = 11.29, rounded
        (uniform, {"start_frame": 100, "end_frame": 180}, [100, 111, 123, 134, 145, 156, 168, 179]),
        (uniform, {"start_frame": 592, "end_frame": 10**30}, list(range(592, 600))),
        # 5 of the frames 100 to 299: steps of 199 / 4 = 49.75, rounded
        (
            lambda asked: search(asked, 5),
            between(100, 300, " a cat\n"),
            clip_sample.SearchRequest("a cat", (100, 150, 200, 249, 299)),
        ),
        (search, between(598, 700, "x" * 20), clip_sample.SearchRequest("x" * 20, (598, 599))),
        # linspace(1, 99, 8): steps of 14; linspace(1, 20, 8): 1, 3.71, 6.43, 9.14, 11.86, 14.57, 17.29, 20
        (choose, {"start": 0, "end": 100}, [1, 15, 29, 43, 57, 71, 85, 99]),
        (choose, {"start": 0, "end": 21}, [1, 3, 6, 9, 11, 14, 17, 20]),
        (choose, {"start": 100, "end": 109}, [101, 102, 103, 104, 105, 106, 107, 108]),
        (choose, {"start": 590, "end": 999_999_999}, [591, 592, 593, 594, 595, 596, 597, 599]),
        (lookup, {"time": "00:42"}, 420),
        (lookup, {"time": "0:42"}, 420),
        (lookup, {"time": "99:59"}, 59_990),  # beyond the video
        (seeking, {"query": " a red car "}, SeekRequest("a red car", 0.0, 60.0, 8)),
        (seeking, {}, SeekRequest("", 0.0, 60.0, 8)),
        (seeking, {"query": None, "start_time": None, "num_frames": None}, SeekRequest("", 0.0, 60.0, 8)),
        (seeking, {"start_time": 10, "end_time": 20.5, "num_frames": 3}, SeekRequest("", 10.0, 20.5, 3)),
        # a number of frames beyond the limits is the nearest within
        (seeking, {"num_frames": -4}, SeekRequest("", 0.0, 60.0, 1)),
        (seeking, {"num_frames": 10**30}, SeekRequest("", 0.0, 60.0, 8)),
        (seeking, {"num_frames": 3.9}, SeekRequest("", 0.0, 60.0, 3)),
        # numbers as text, and bad ones (defaults)
        (seeking, {"start_time": "10", "end_time": "20"}, SeekRequest("", 10.0, 20.0, 8)),
        (seeking, {"start_time": "soon", "end_time": "nan", "num_frames": "all"}, SeekRequest("", 0.0, 60.0, 8)),
        (seeking, {"start_time": True, "end_time": False}, SeekRequest("", 0.0, 60.0, 8)),
        (seeking, {"end_time": 10**400}, SeekRequest("", 0.0, 60.0, 8)),
        (seeking, {"start_time": -5, "end_time": 9_999}, SeekRequest("", 0.0, 60.0, 8)),  # clamped to the video
        (seeking, {"start_time": 60}, SeekRequest("", 60.0, 60.0, 8)),
        (seeking, {"query": 5}, SeekRequest("5", 0.0, 60.0, 8)),
    ],
)
def test_legal_requests(check: Callable[[Mapping[str, Any]], Any], arguments: dict[str, Any], request_: Any) -> None:
    assert check(arguments) == request_


NO_NUMBERS = (None, "1", True, [1], {"t": 1}, math.nan, math.inf, -math.inf, 10**400)
NO_INTEGERS = (None, "1", True, 1.0, [1], math.nan)
SEGMENTS = ("1,2", [1], [1, 2, 3], *([1, wrong] for wrong in NO_NUMBERS), *([wrong, 2] for wrong in NO_NUMBERS))
CROP = {"video_path": "v.mp4", "start_time": 1, "end_time": 2}


@pytest.mark.parametrize(
    ("check", "legal", "key", "wrong"),
    [
        (zoom, {"segment": [1, 2], "fps": 1}, "segment", (*SEGMENTS, [5, 5], [9, 5], [70, 80], [0, 8.5 * 2])),
        (zoom, {"segment": [1, 2], "fps": 1}, "fps", (*NO_NUMBERS, 0, -3, 1e308, 0.5)),
        (named_crop, CROP, "video_path", (None, "/etc/passwd", "", ["v.mp4"])),
        (named_crop, CROP, "start_time", (*NO_NUMBERS, -0.1, 2, 9)),
        (named_crop, CROP, "end_time", (*NO_NUMBERS, 1, 0, 60.1)),
        (lambda asked: crop(asked, CLAMPED), {**CROP, "end_time": 70}, "start_time", (60, 65)),
        (moment, {"t": 1}, "t", (*NO_NUMBERS, -0.1, 60.1, 1e308)),
        (moment, {"t": 1}, "more", (4,)),
        (clip, {"t_start": 1, "t_end": 2}, "t_start", (*NO_NUMBERS, -1, 2, 9, 1.95)),
        (clip, {"t_start": 1, "t_end": 2}, "t_end", (*NO_NUMBERS, 61)),
        (clip, {"t_start": 1, "t_end": 2}, "fps", (3,)),
        (ground, json.loads(GOOD), "temporal_segment", (*SEGMENTS, [3, 3.9], [3, 1], [59.5, 70], [80, 90])),
        (ground, json.loads(GOOD), "sampling_strategy", ("FINE", ["fine"], None)),
        (uniform, {"start_frame": 1, "end_frame": 90}, "start_frame", (*NO_INTEGERS, 90, 91, -1, 10**30, 83)),
        (uniform, {"start_frame": 593, "end_frame": 601}, "end_frame", (*NO_INTEGERS, 900)),  # seven after clipping
        (search, between(), "start_frame", (*NO_INTEGERS, 600, -1)),
        (search, between(), "prompt", (None, 7, ["red"], "", " \n\t", "\ud800", "red \udfff", "x" * 21)),
        (choose, {"start": 1, "end": 100}, "start", (*NO_INTEGERS, -1, 100, 92, 600)),
        (choose, {"start": 595, "end": 900}, "end", (*NO_INTEGERS, 900)),  # five frames are left
        (
            lookup,
            {},
            "time",
            (None, 42, True, "42", "0:4", "1:05:20", "-1:20", "00:42 ", "1234:00", "", "\u0660:\u0664"),
        ),
        # Python would count a negative end from the video's
        (seeking, {}, "end_time", (-1,)),
        (seeking, {"end_time": 10}, "start_time", (60.1, 20)),
        (seeking, {}, "query", ("x" * 101, "\ud800")),
    ],
)
def test_illegal_requests(
    check: Callable[[Mapping[str, Any]], Any], legal: dict[str, Any], key: str, wrong: tuple[Any, ...]
) -> None:
    for value in wrong:
        with pytest.raises(ToolError):
            check({**legal, key: value})
    if key in legal:
        with pytest.raises(ToolError):
            check({name: value for name, value in legal.items() if name != key} | ({} if len(legal) > 1 else {"x": 1}))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("segment", "fps", "video_path", "start_time", "end_time", "t", "t_start", "t_end", "temporal_segment", "time")
KEYS += ("sampling_strategy", "start_frame", "end_frame", "prompt", "start", "end", "query", "num_frames")
CHECKS = (zoom, crop, moment, clip, ground, uniform, search, choose, lookup, seeking)


@pytest.mark.parametrize("check", CHECKS)
@given(arguments=st.dictionaries(st.sampled_from(KEYS), PLAIN | st.floats(0, 60) | st.integers(0, 600)))
def test_hostile_requests_are_refused_or_kept_within_limits(check: Callable[..., Any], arguments: dict) -> None:
    if check is moment or check is clip:
        arguments = {key: value for key, value in arguments.items() if key.startswith("t") and len(key) != 4}
    try:
        request = check(json.loads(json.dumps(arguments)))
    except ToolError:
        return
    if isinstance(request, ZoomRequest | CropRequest | ClipRequest | GroundRequest | SeekRequest):
        assert 0.0 <= request.start <= request.end <= DURATION
        assert 1 <= getattr(request, "count", 1) <= 128
    elif isinstance(request, float):
        assert 0.0 <= request <= DURATION
    elif not isinstance(request, int):
        indices = list(getattr(request, "candidates", request))
        assert indices == sorted(set(indices)) and indices and 0 <= indices[0] <= indices[-1] < FRAMES


# Numbers of frames


@pytest.mark.parametrize(
    ("seconds", "count"),
    # one frame a second, cut to a whole number, in 1 .. 128
    [(1e-300, 1), (0.4, 1), (1.0, 1), (1.9, 1), (2.0, 2), (0.1 * 30, 3), (127.5, 127), (128.0, 128), (1e308, 128)],
)
def test_frames_of_a_crop(seconds: float, count: int) -> None:
    assert LIMITS.count(seconds) == count


def test_the_rate_and_the_limits_of_a_crop_are_the_systems() -> None:
    limits = CropLimits(fps=2.0, min_frames=4, max_frames=16)
    assert [limits.count(seconds) for seconds in (1.0, 3.0, 60.0)] == [4, 6, 16]


@pytest.mark.parametrize(
    ("seconds", "count"),
    [(0.1, 8), (4.0, 8), (4.4, 9), (5.0, 10), (7.5, 15), (10.0, 20), (3600.0, 20)],  # round(2 * seconds) in 8 .. 20
)
def test_frames_of_a_clip(seconds: float, count: int) -> None:
    assert clip_count(seconds, 2.0, 8, 20) == count


@pytest.mark.parametrize(
    ("seconds", "count"), [(1.0, 4), (2.0, 4), (2.5, 4), (3.0, 6), (3.4, 6), (100.0, 200), (384.0, 768), (5000.0, 768)]
)
def test_two_frames_a_second_within_limits_and_even(seconds: float, count: int) -> None:
    assert frame_count(seconds, 2.0, 4, 768) == count


def test_an_end_beyond_the_video_is_clipped_and_a_short_range_kept_whole() -> None:
    assert uniform_sample.frames_within({"start_frame": 590, "end_frame": 10**30}, 600) == range(590, 600)
    assert uniform_sample.spread(range(7, 10), 128) == [7, 8, 9]
    whole = search(between(0, 600)).candidates
    assert search(between(0, 10**12)).candidates == whole and (len(whole), whole[-1]) == (128, 599)
    assert choose_frames.chosen_indices({"start": 10, "end": 20}, 600, 1) == [11]


# Texts of FrameThinker's and Video-o3's calls


def test_requests_in_words() -> None:
    assert choose_frames.parse_choice("choose  frames\nbetween 0410 and 430 .") == {"start": 410, "end": 430}
    assert frame_number.parse_lookup("get frame  number at time\n120:07.") == {"time": "120:07"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "choose frames between 410 and",
        "choose frames between -410 and 430",
        "choose frames between 410 and 430 and output answer: B",
        "I choose frames between 410 and 430",
        "choose frames between 1 and 1234567890",
        "choose frames between \u0664\u0661 and \u0664\u0663",
        "get frame number at time",
        "get frame number at time 1:05:20",
        "first get frame number at time 00:42",
        "get frame number at time " + "9" * 5000 + ":00",
    ],
)
def test_texts_that_are_no_request(text: str) -> None:
    assert choose_frames.parse_choice(text) is None and frame_number.parse_lookup(text) is None


@pytest.mark.parametrize(
    ("time", "fps", "number"),
    [
        ("01:05", 25.0, 1625),
        ("65:20", 30.0, 117_600),  # 3920 s
        ("00:42", 29.97, 1258),  # 1258.74
        ("00:42", 9.9999999999, 420),  # a rate with a rounding error
    ],
)
def test_a_frame_number_is_the_whole_part_of_seconds_times_rate(time: str, fps: float, number: int) -> None:
    assert frame_number.number_at({"time": time}, fps) == number
    assert frame_number.replied_number((frame_number.reply_text(time, number),)) == number


@pytest.mark.parametrize(
    "body", [GOOD, f"\n {GOOD} \n", f"```json\n{GOOD}\n```", GOOD.replace('"', "'"), f"to: {GOOD}"]
)
def test_near_json_is_repaired(body: str) -> None:
    assert read_grounding(body) == json.loads(GOOD)


@pytest.mark.parametrize("body", ["", "1", "[1, 3]", "{", "}{", GOOD + GOOD, GOOD[:-1], "{'a': it's}", "{" * 5000])
def test_other_texts_stay_unreadable(body: str) -> None:
    with pytest.raises(ToolError):
        read_grounding(body)


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        (GOOD, 0),
        (GOOD.replace("fine", "sharp"), 1),
        (GOOD.replace("[1, 3]", "[1]"), 1),
        ('{"sampling_strategy": "fine"}', 1),
        ("{}", 2),
        (GOOD.replace('"', "'"), 1),  # repaired when it is carried out, an error all the same
        ("3", 1),
        (GOOD.replace("[1, 3]", '["a", -9]'), 0),  # the numbers aren't checked
    ],
)
def test_errors_of_a_call_s_json(body: str, errors: int) -> None:
    assert json_errors(body) == errors


# Searched frames


@pytest.mark.parametrize(
    ("num_frames", "duration", "count"),
    # two a second, 7,200 are too many, not less than four, all there are, rounded down
    [(600, 60.0, 120), (36_000, 3_600.0, 2_048), (10, 1.0, 4), (3, 0.3, 3), (600, 60.9, 121)],
)
def test_the_searched_frames(num_frames: int, duration: float, count: int) -> None:
    pool = pool_indices(num_frames, duration, 2.0, 2_048)
    assert (len(pool), pool[0], pool[-1]) == (count, 0, num_frames - 1)


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (0.0, 60.0, [0, 10, 20, 30, 40]),
        (1.0, 2.0, [10, 20]),  # both are frames of the pool
        (1.1, 2.1, [10, 20, 30]),  # the nearest one on each side
        (1.5, 1.5, [10, 20]),
        (2.0, 2.0, [20]),
        (4.5, 9.0, [40]),  # behind the last one
    ],
)
def test_searched_frames_of_a_stretch(start: float, end: float, found: list[int]) -> None:
    assert within([0, 10, 20, 30, 40], start * 10, end * 10) == found


@given(st.integers(1, 500), st.floats(0, 100), st.floats(0, 100), st.floats(1, 60))
def test_no_stretch_is_empty(num_frames: int, start: float, end: float, fps: float) -> None:
    pool = pool_indices(num_frames, num_frames / fps, 2.0, 64)
    found = within(pool, min(start, end) * fps, max(start, end) * fps)
    assert found and set(found) <= set(pool)
