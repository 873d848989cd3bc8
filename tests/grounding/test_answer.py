# ruff: noqa: RUF001 - answers in full-width writing
"""Intervals that models write, and what they earn."""

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.grounding.answer import (
    MAX_CHARS,
    MAX_INTERVALS,
    MAX_SECONDS,
    grade_intervals,
    read_interval,
    read_intervals,
)
from agentic_video.types.row import Interval, VideoQA, windows_text
from tests.growth import assert_linear

HUNDREDTHS = st.integers(0, 500_000).map(lambda number: number / 100)
INTERVALS = st.lists(st.tuples(HUNDREDTHS, HUNDREDTHS), min_size=1, max_size=5)
WORDS = ("-", " - ", " to ", " and ", "between ", ",", "s", " seconds", "min", '"start"', '"end"', "start: ", "end: ")
NUMBERS = ("12", "3.5", "00:12", "1:02:03", "9" * 40, "e5", "NaN", "\u0663", "\u00b2", "%")
PIECES = st.sampled_from((*WORDS, *NUMBERS, *"[](){}:.\n"))


def asked(answer_type: str, *windows: Interval) -> VideoQA:
    return VideoQA("q", "v.mp4", "when?", windows_text(windows), answer_type, windows=windows)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "12.5 - 20",
        " 12.5 \u2013 20.0 ",
        "12.5 -> 20",
        "It happens between 12.5 and 20 seconds, near the door.",
        "**12.5 to 20 sec**",
        "00:12.5 - 00:20",
        "00:00:12.5 - 00:00:20",
        "[12.5, 20]",
        "[ 12.5; 20 ] s",
        "start: 12.5, end: 20",
        "Start time: 12.5 s; end time: 20 s",
        "START: 12.5 - END: 20",
        "It starts at 12.5 seconds and ends at 20 seconds.",
        "The event starts at 00:00:12.5, and the event ends at 00:00:20.",
        "{'start_time': 12.5, 'end_time': 20.0}",
        "<12.5 seconds> to <20.0 seconds>",
        "from <12.50s> - <20.00s>",
        "<time>12.5 - 20</time>",
        "- 12.5 until 20",
        '{"start": 12.5, "end": 20}',
        '{"end_time": 20, "start_time": "00:12.5"}',
        '{"temporal_segment": [12.5, 20]}',
        '```json\n{"relevant_span": [[12.5, 20]]}\n```',
        '["12.5s", "20s"]',
        "**12.5; 20 s**.",
        "Segment 1: 12.5 - 20",
        "the 2nd clip: 12.5 to 20",
        "1. 12.5 - 20",
        "The relevant window is 12.5\u201320.0 (duration: 7.5 s)",
        "12.5 - 20, lasting about 8 seconds",
        "It lasts 12.5 s to 20 s.",
        '{"time": "12.5 - 20"}',
        # full width and CJK brackets, commas, dashes, digits
        "１２．５秒～２０秒",
        "［12.5，20］",
        "「12.5、20」",
        "12.5，20",
        "12.5 〜 20",
        "12.5——20",
        "００：１２．５－００：２０",
        # Chinese, Japanese, Korean
        "12.5秒到20秒",
        "从12.5秒至20秒",
        "第12.5秒—第20秒",
        "在第12.5秒和第20秒之间",
        "开始：12.5，结束：20",
        "开始时间：12.5秒，结束时间：20秒",
        "12.5秒开始，20秒结束",
        "该事件发生在12.5秒到20秒，持续7.5秒。",
        "0分12.5秒到0分20秒",
        "片段1：12.5秒到20秒",
        "12.5秒から20秒まで",
        "12.5초부터 20초까지",
        '{"开始": 12.5, "结束": 20}',
        # subtitles
        "00:00:12.500 --> 00:00:20.000",
        "1\n00:00:12,500 --> 00:00:20,000",
        # LaTeX
        "$12.5 - 20$",
        "\\boxed{[12.5, 20]}",
        "\\boxed{12.5\\text{ s} - 20\\text{ s}}",
        "$\\boxed{12.5\\,\\mathrm{s} \\to 20\\,\\mathrm{s}}$",
        "\\[12.5, 20\\]",
        "\\(\\left[12.5, 20\\right]\\)",
        "\\{12.5, 20\\}",
        # others
        "{12.5, 20}",
        "t=12.5 to t=20",
        "0 min 12.5 s to 0 min 20 s",
        "0m12.5s - 0m20s",
        '{"begin": 12.5, "end": 20}',
        "<start>12.5</start><end>20</end>",
    ],
)
def test_one_interval_in_many_dresses(text: str) -> None:
    assert read_intervals(text) == ((12.5, 20.0),)
    assert read_interval(text) == (12.5, 20.0)


@pytest.mark.parametrize(
    "text",
    [
        "1 - 2, 3.5 - 64",
        "[1, 2], [3.5, 64]",
        "[[1, 2], [3.5, 64]]",
        "from 1 to 2 and from 3.5 to 64 seconds",
        "between 1 and 2, and between 3.5 and 64",
        "- 00:01 - 00:02\n- 00:03.5 - 01:04\n",
        '[{"start": 1, "end": 2}, {"start": 3.5, "end": 64}]',
        '{"windows": [[1, 2], ["00:03.5", "01:04"]]}',
        "1. 1 - 2\n2. 3.5 - 64",
        "Segment 1: 1 to 2\nSegment 2: 3.5 to 64",
        "the 1st clip: 1 to 2, the 2nd clip: 3.5 to 64",
        "1 - 2 (duration: 1 s), 3.5 - 64 (duration: 60.5 s)",
        "1秒到2秒，3.5秒到64秒",
        "第1段：1秒到2秒；第2段：3.5秒到64秒",
        "1秒到2秒，或者3.5秒到1分4秒",
        "1\n00:00:01,000 --> 00:00:02,000\n2\n00:00:03,500 --> 00:01:04,000",
        "\\boxed{1 - 2} \\boxed{3.5 - 64}",
    ],
)
def test_several_intervals(text: str) -> None:
    assert read_intervals(text) == ((1.0, 2.0), (3.5, 64.0))
    assert read_interval(text) is None, "one was asked for"


def test_one_interval_that_is_written_again_is_one() -> None:
    for text in ("from 00:12 to 00:20 (12 s to 20 s)", "12 - 20, that is 12 s to 20 s", "[[12, 20], [12, 20]]"):
        assert read_interval(text) == (12.0, 20.0)
    for text in ("12 - 20, 12 - 20, 12 - 21", "00:12 to 00:20 (12.4 s to 20 s)", "12 - 20 or 20 - 12"):
        assert read_interval(text) is None


def test_clock_times_by_hand() -> None:
    assert read_interval("1:02:03.5 - 1:02:10") == (3723.5, 3730.0)
    assert read_interval("75:10 to 76:00") == (4510.0, 4560.0)
    assert read_interval("segment 1:30 - 2:00") == (90.0, 120.0), "no segment of number 1"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "B",
        "at the end",
        "12",
        "12 and 20",
        "12,20",
        "1,200",
        "12, 20, 30",
        "at 12, 20",
        "12 - 20 - 30",
        "<12 frames> to <20 frames>",
        "starts at 12 and weekends at 20",
        "starts at 12 and ends before 20",
        "start: 12, end: -20",
        "12 to 20 of 60 seconds",
        "2. 12 - 20",
        "1. 12 - 20\n3. 30 - 40",
        "option 1: 12 - 20",
        "Segment 1 - 12 to 20",
        "12 - 20 (duration: 60 s)",
        "12 - 20 (duration: 8 s) of a video with a duration of 60 s",
        "12 - 20, for 8 minutes",
        "duration: 8 s",
        "1 - 2 - segment 1: 3 - 4",
        "frames 10 to 20",
        "minutes 10 to 20",
        '{"frames": [10, 20]}',
        '{"frame_numbers": "10 - 20"}',
        '{"answer": "12 - 20, or 30"}',
        "-5 - 10",
        "5--10",
        "1e1 - 1e2",
        "12 - 1e999",
        "NaN - 20",
        "12 - 20 minutes",
        "1 min 75 s - 2 min 30 s",
        "1 min - 1 min 30 s",
        "12 - 20 %",
        "frame 12 - 20 frames",
        "v12 - 20",
        "12:5 - 13:10",
        "1:2:3 - 4:5:6",
        "00:00:00:12 - 00:00:00:20",
        "1.2.3 - 4.5.6",
        "\u0661\u0662 - \u0662\u0660",
        "12\u00b2 - 20",
        "1\u200b2 - 20",
        "(12, 20]",
        "[12, NaN]",
        "[12, 1e999]",
        "[-1, 20]",
        "[true, 20]",
        "[12, 20, 30]",
        "[[12, 20], [30]]",
        "[]",
        "{}",
        '{"start": 12}',
        '{"start": 12, "end": 20, "other": 30}',
        '{"start": [12], "end": 20}',
        "[" * 1_500,
        "9" * 1_900 + " - " + "9" * 50,
        "[0, " + "9" * 1_900 + "]",
        f"0 - {MAX_SECONDS + 1:.0f}",
        "1 - 2, " * (MAX_INTERVALS + 1),
        json.dumps([[1, 2]] * (MAX_INTERVALS + 1)),
        "12 - 20" + " " * MAX_CHARS,
        "第10帧到第20帧",
        "帧号：10-20",
        "10分钟到20分钟",
        "12秒，20秒，30秒",
        "12²秒到20秒",
        "12,500 --> 20,000",
        "第12秒",
        "12秒到20帧",
        "\\frac{12}{20} - 30",
        "\\boxed{12\\%} - \\boxed{20\\%}",
        "12秒到20秒到30秒",
        "５--１０",
    ],
)
def test_what_is_no_interval_or_not_only_intervals_is_none(text: str | None) -> None:
    assert read_intervals(text) == ()
    for answer_type in ("interval", "intervals"):
        assert grade_intervals(text, asked(answer_type, (0, 1e9))) == 0.0


@given(st.text() | st.lists(PIECES, max_size=60).map("".join))
def test_whatever_is_written(text: str) -> None:
    found = read_intervals(text)
    assert len(found) <= MAX_INTERVALS
    assert all(math.isfinite(time) and 0 <= time <= MAX_SECONDS for interval in found for time in interval)
    for answer_type in ("interval", "intervals"):
        grade = grade_intervals(text, asked(answer_type, (3.0, 12.0), (20.0, 30.0)))
        assert 0.0 <= grade <= 1.0
        assert not grade or found
        assert answer_type == "intervals" or not grade or len(found) == 1


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=8))
def test_whatever_json_is_written(value: object) -> None:
    for text in (json.dumps(value), json.dumps({"start": value, "end": 1}), json.dumps([value, value])):
        assert all(0 <= time <= MAX_SECONDS for interval in read_intervals(text) for time in interval)


SPANS = (
    "{0} - {1}",
    "[{0}, {1}]",
    "[{0}，{1}]",
    "{0}秒到{1}秒",
    "从{0}秒至{1}秒",
    "第{0}秒—第{1}秒",
    "{0}s ～ {1}s",
    "在{0}秒和{1}秒之间",
    "{0} --> {1}",
    "$[{0}, {1}]$",
    "start: {0}, end: {1}",
    "开始：{0}秒，结束：{1}秒",
    '{{"start": {0}, "end": {1}}}',
)
AROUND = ("{}", "\\boxed{{{}}}", "**{}**", "答案：{}。", "<time>{}</time>", "The event: {}.")


def full_width(text: str) -> str:
    return "".join(chr(ord(character) + 0xFEE0) if character in "0123456789.:" else character for character in text)


@given(
    st.tuples(HUNDREDTHS, HUNDREDTHS),
    st.tuples(HUNDREDTHS, HUNDREDTHS),
    st.sampled_from(SPANS),
    st.sampled_from(AROUND),
    st.sampled_from((str, full_width)),
)
def test_an_interval_in_any_dress_is_that_one_and_two_are_none(
    first: Interval, second: Interval, dress: str, around: str, digits: Callable[[str], str]
) -> None:
    if dress.startswith("{{") and around != "{}":
        return  # JSON stands by itself
    one, two = (dress.format(*(digits(f"{time:.2f}") for time in span)) for span in (first, second))
    assert read_interval(around.format(one)) == first
    if first != second:
        for glue in (", ", "，或者", " or ", "\n"):
            assert read_interval(around.format(one + glue + two)) is None
        assert grade_intervals(around.format(two), asked("interval", first)) < 1.0


@given(INTERVALS)
def test_windows_of_a_row_are_read_back(intervals: list[Interval]) -> None:
    assert read_intervals(windows_text(intervals)) == tuple(intervals)
    assert read_intervals(json.dumps(intervals)) == tuple(intervals)
    clocks = ", ".join(
        " - ".join(f"{t // 3600:.0f}:{t % 3600 // 60:02.0f}:{t % 60:05.2f}" for t in interval) for interval in intervals
    )
    if "60.00" not in clocks:
        assert read_intervals(clocks) == tuple((pytest.approx(s), pytest.approx(e)) for s, e in intervals)


def test_grades_by_hand() -> None:
    # 10..20 with 12..22: 8 of 12; with 15..17: 2 of 10
    one = asked("interval", (15, 17), (12, 22))
    assert grade_intervals("10 - 20", one) == pytest.approx(8 / 12)
    assert grade_intervals("12 - 22", one) == grade_intervals("15 - 17", one) == 1.0
    assert grade_intervals("20 - 10", one) == grade_intervals("12 - 12", one) == 0.0
    assert grade_intervals("12 - 22, 15 - 17", one) == 0.0, "two where one was asked for"
    # 0..10 and 20..30 against 5..25: 10 of 30
    several = asked("intervals", (5, 25))
    assert grade_intervals("0 - 10, 20 - 30", several) == pytest.approx(1 / 3)
    assert grade_intervals(None, several) == 0.0


def test_many_intervals_earn_no_more_than_the_seconds_that_they_cover() -> None:
    qa = asked("intervals", (10, 20))
    everywhere = ", ".join(f"{5 * number} - {5 * number + 5}" for number in range(20))
    assert grade_intervals(everywhere, qa) == pytest.approx(grade_intervals("0 - 100", qa)) == pytest.approx(0.1)
    assert grade_intervals("10 - 20, 10 - 20, 12 - 15", qa) == 1.0


def test_other_answers_are_not_graded_here() -> None:
    with pytest.raises(ValueError, match="row q: the answer is no interval"):
        grade_intervals("1 - 2", VideoQA("q", "v", "what?", "a cat", "open_ended", windows=((1, 2),)))


@pytest.mark.parametrize(
    "piece",
    [
        "1 - 2, ",
        "9:99",
        "9.",
        "-",
        " ",
        "between ",
        "[",
        "<1>",
        "start: ",
        "12 to ",
        "segment 1",
        "1. ",
        "frames ",
        "第1",
        "1秒到",
        "\\frac{1}",
        "00:00:01,000 --> ",
        "1\n",
        "ﷺ",
        "\n1. ",
    ],
)
def test_time_grows_with_the_text(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentic_video.grounding.answer.MAX_CHARS", 10**6)
    monkeypatch.setattr("agentic_video.grounding.answer.MAX_INTERVALS", 10**6)
    small = piece * (4_000 // len(piece))
    assert_linear(read_intervals, small, small * 8)
