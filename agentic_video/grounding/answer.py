"""Intervals that a model wrote as its answer: what they are, and how right they are.

An answer is hostile input. It is read as a whole or not at all: every number in it must belong to an interval, so that
a list of guesses, a time that is no number of seconds, or a text with other numbers earns nothing. Two kinds of other
numbers are allowed: those that count the intervals (``Segment 1:``, ``the 2nd clip``, ``1.`` and ``2.`` before lines),
and an interval's length, where that is right (``12.5 - 20 (duration: 7.5 s)``). Numbers of frames or minutes
(``frames 10 to 20``) are none of seconds.

What is read, in seconds (``12.5``, ``12.5 s``) or clock times (``MM:SS``, ``HH:MM:SS``, with fractions, or
``1 min 20 s``), in full-width writing, in Chinese, Japanese or Korean words and in LaTeX as well:

- ``12.5 - 20``, ``12.5 to 20``, ``from 12.5 s until 20 s``, ``between 00:12 and 00:20``, ``[12.5, 20]``,
  ``start: 12.5, end: 20``, ``starts at 12.5 s and ends at 20 s``, with words around them that hold no digit; several of
  them after one another; a time may stand in angle brackets, as systems label their frames (``<12.5 seconds>``);
- ``12.5, 20`` where that is all;
- subtitles' ``00:00:12,500 --> 00:00:20,000``;
- JSON: ``[12.5, 20]``, ``[[12.5, 20], [31, 40]]``, ``{"start": 12.5, "end": 20}`` (or ``start_time``, ``end_time`` and
  the like), a list of such objects, or an object with one field that holds any of these, or a text as above.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from agentic_video.grounding.intervals import iou, set_iou
from agentic_video.types.row import INTERVAL_TYPES, Interval, VideoQA
from agentic_video.types.written import plain, without_latex

MAX_CHARS = 2_000
"""A longer answer holds no interval."""
MAX_INTERVALS = 32
"""An answer with more intervals holds none."""
MAX_SECONDS = 1e6
"""An answer with a later time holds none: eleven days."""

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_SECOND = "(?:s|secs?|seconds?)\\b|秒[钟鐘]?|초"
_MINUTE = "(?:m|mins?|minutes?)(?![a-z])|分[钟鐘]?|분"
_HOUR = "(?:h|hrs?|hours?)(?![a-z])|小时|小時|時間|시간"
_FRAME = "frames?\\b|帧|幀|フレーム|コマ|프레임"
_TIME = re.compile(
    r"(?<![\w.])(?<![0-9]:)(?P<time>[0-9]+(?::[0-9]{2}){1,2}(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?)"
    rf"(?:\s?(?:{_SECOND}))?"
    rf"(?![^\W{_CJK}]|:|\.[0-9]|\s?%|\s?(?:ms\b|{_MINUTE}|{_HOUR}|{_FRAME}))",
    re.IGNORECASE,
)
"""A time and what may follow it; not a part of a longer number, nor one in another unit."""
_IN_WORDS = re.compile(
    rf"(?<![\w.:])(?:([0-9]{{1,3}})\s?(?:{_HOUR})\s?)?([0-9]{{1,4}})\s?(?:{_MINUTE})\s?([0-9]{{1,2}}(?:\.[0-9]{{1,6}})?)"
    rf"\s?(?:{_SECOND})",
    re.IGNORECASE,
)
"""A time in minutes and seconds, perhaps with hours before them."""
_SCRIPTS_MEET = re.compile(f"(?<=[0-9])(?=[{_CJK}])|(?<=[{_CJK}])(?=[0-9])")
_HIDDEN_IN_NUMBER = re.compile("[0-9][\u00ad\u200b-\u200d\u2060\ufeff]+[0-9]")
_COMMA_DECIMALS = re.compile(r"(?<![0-9:.,])([0-9]{1,2}:[0-9]{2}:[0-9]{2}),([0-9]{3})(?![0-9:,])")
_CUES = re.compile(r"^[ ]{0,8}([0-9]{1,3})[ ]{0,8}\n(?=[ ]{0,8}[0-9]{1,2}:[0-9:.,]{2,12} *-->)", re.MULTILINE)
_DASHES = {ord("~"): "-"}
_NEXT = r"""["']?\s*(?:第|t\s?=\s?)?\s*["']?"""
_RANGE = re.compile(
    rf"""["']?\s*(?:-{{1,2}}>|=>|-|to|until|till|through|到|至|直到|から|부터){_NEXT}|</start(?:_time)?>\s*<end(?:_time)?>""",
    re.IGNORECASE,
)
_AND = re.compile(r"\s*(?:and|和|与|與|及)\s*第?\s*", re.IGNORECASE)
_BETWEEN = re.compile(r"between\s*\Z", re.IGNORECASE)
_BETWEEN_BEHIND = re.compile(r"\s*(?:之间|之間|间|間)")
_BEGINS = re.compile(r"\s*(?:开始|開始)[\s,;]*(?:到|至)?\s*第?\s*")
_ENDS_BEHIND = re.compile(r"\s*(?:结束|結束|終了|终止|为止|為止)")
_COMMA = re.compile(r"\s*[,;]\s*")
_END = re.compile(
    r"[\s,;.-]*(?:and\s+)?(?:it\s+|the\s+(?:[a-z]+\s+)?)?"
    r"[\"']?end(?:s|ing)?(?:[\s_]?time)?[\"']?\s*(?:[:=]|at|is)?\s*"
    r"|[\s,;.-]*(?:结束|結束|終了|终止|終止)(?:时间|時間|时刻)?(?:于|是|为|為|在)?\s*[:=]?\s*第?\s*",
    re.IGNORECASE,
)
_PAIR = re.compile(r"\s*[,;]\s+")
_OTHER_UNIT = re.compile(
    r"(?:\b(?:frames?|mins?|minutes?|hours?)(?:\s(?:numbers?|indices|index))?|[帧幀][号號数數]?|フレーム|프레임|分钟|小时)"
    r"[\s:=#(\[第为是]{0,8}\Z",
    re.IGNORECASE,
)
_KINDS = "answer|clip|event|interval|moment|part|range|scene|segment|span|window"
_CJK_KINDS = "片段|区间|區間|时间段|時間段|事件|场景|場景|区間|구간"
_COUNTS = re.compile(
    rf"\b(?:{_KINDS})[ ]?#?[0-9]{{1,2}}[ ]?[:.)](?=\s)|(?<![\w.:])[0-9]{{1,2}}(?:st|nd|rd|th)\s(?={_KINDS})"
    rf"|(?:{_CJK_KINDS})[ ]?[0-9]{{1,2}}[ ]?[:.)]|第[ ]?[0-9]{{1,2}}[ ]?(?:个|個|段|次|{_CJK_KINDS})[:]?",
    re.IGNORECASE,
)
"""A number that says which interval is meant."""
_LINE_NUMBER = re.compile(r"^[ ]{0,8}([0-9]{1,2})[.)][ ]{1,8}(?=\S)", re.MULTILINE)
_LASTS = re.compile(
    r"(?:\b(?:duration|length|lasts|lasting|for)(?:\s(?:of|is))?\s?[:=]?\s?(?:about\s)?"
    rf"|(?:持续|持續|时长|時長|长度|長度|共)(?:时间|時間)?(?:约|約|为|為|是)?\s?[:=]?\s?){_TIME.pattern}",
    re.IGNORECASE,
)
"""A stated length of an interval."""
_MAX_LENGTH_ERROR = 0.5
_LABEL = re.compile(r"<\s*([^<>]{1,24}?)\s*>")
_FENCE = re.compile(r"```(?:json)?", re.IGNORECASE)
_BRACKETS = (("[", "]"), ("(", ")"), ("{", "}"))
_NAMES = (
    ("start", "end"),
    ("start_time", "end_time"),
    ("start_sec", "end_sec"),
    ("begin", "end"),
    ("from", "to"),
    ("开始", "结束"),
    ("开始时间", "结束时间"),
)


class _UnreadableAnswer(ValueError):
    pass


def read_intervals(text: str | None) -> tuple[Interval, ...]:
    """The intervals of an answer, in its order; none where it can't be read or is longer than ``MAX_CHARS``.

    Starts and ends are finite and not negative; an interval written the wrong way round stays so, and overlaps with
    nothing.
    """
    if text is None or len(text) > MAX_CHARS:
        return ()
    try:
        bare = _FENCE.sub("", _plain(text)).strip()
        found = _from_json(bare) if bare[:1] in ("[", "{") else None
        found = _from_text(bare) if found is None else found
    except _UnreadableAnswer:
        return ()
    return found if len(found) <= MAX_INTERVALS else ()


def read_interval(text: str | None) -> Interval | None:
    """The one interval of an answer, however often it is written there; None where there are none or several."""
    found = set(read_intervals(text))
    return found.pop() if len(found) == 1 else None


def grade_intervals(answer: str | None, qa: VideoQA) -> float:
    """Grade an answer, 0 to 1.

    ``interval``: the IoU of the one interval with the best window. ``intervals``: the IoU of all answered seconds with
    all gold ones, however they are cut into intervals.
    """
    if qa.answer_type not in INTERVAL_TYPES:
        raise ValueError(f"row {qa.id}: the answer is no interval, but {qa.answer_type}")
    if qa.answer_type == "intervals":
        return set_iou(read_intervals(answer), qa.windows)
    answered = read_interval(answer)
    return 0.0 if answered is None else max((iou(answered, window) for window in qa.windows), default=0.0)


def _plain(text: str) -> str:
    """A text in ASCII's signs and without LaTeX, in which words of other scripts stand apart from numbers."""
    if _HIDDEN_IN_NUMBER.search(text):
        raise _UnreadableAnswer
    # A full-width comma stands between two numbers; "12,20" may be one
    text = plain(text.replace("\u2014\u2014", "-").replace("\uff0c", ", ").replace("\u3001", ", "))
    if len(text) > MAX_CHARS or any(character > "\x7f" and character.isdigit() for character in text):
        raise _UnreadableAnswer  # a digit of another script is part of a number that isn't read
    text = without_latex(text) if "\\" in text else text
    return _COMMA_DECIMALS.sub(r"\1.\2", _SCRIPTS_MEET.sub(" ", text))


def _from_text(text: str) -> tuple[Interval, ...]:
    text = _IN_WORDS.sub(_as_clock, text)
    text = _LABEL.sub(lambda label: label[1] if _TIME.fullmatch(label[1]) else label[0], text.translate(_DASHES))
    text, lengths = _without_lengths(_without_counts(text))
    times = []
    for time in _TIME.finditer(text):
        times.append(time)
        if len(times) > 2 * MAX_INTERVALS:
            raise _UnreadableAnswer
    if len(times) % 2:
        raise _UnreadableAnswer
    found: list[Interval] = []
    before = 0
    for first, second in zip(times[::2], times[1::2], strict=True):
        lead, between = text[before : first.start()], text[first.end() : second.start()]
        if _has_digit(lead) or _has_digit(between) or lead.endswith("-") or _OTHER_UNIT.search(lead[-40:]):
            raise _UnreadableAnswer  # a number that isn't one of seconds, or one below 0
        if found and "\n" not in lead and _RANGE.fullmatch(lead):
            raise _UnreadableAnswer  # a chain: 1 - 2 - 3 - 4
        brackets = (lead.rstrip()[-1:], text[second.end() : second.end() + 4].lstrip()[:1])
        if not (
            _RANGE.fullmatch(between)
            or (_AND.fullmatch(between) and (_BETWEEN.search(lead) or _BETWEEN_BEHIND.match(text, second.end())))
            or (_BEGINS.fullmatch(between) and _ENDS_BEHIND.match(text, second.end()))
            or (_COMMA.fullmatch(between) and brackets in _BRACKETS)
            or _END.fullmatch(between)
            or (_PAIR.fullmatch(between) and len(times) == 2 and _is_bare(lead + text[second.end() :]))
        ):
            raise _UnreadableAnswer
        found.append((_seconds(first["time"]), _seconds(second["time"])))
        before = second.end()
    if _has_digit(text[before:]) or (lengths and not _are_lengths(lengths, list(dict.fromkeys(found)))):
        raise _UnreadableAnswer
    return tuple(found)


def _as_clock(time: re.Match[str]) -> str:
    hours, minutes, seconds = time[1], int(time[2]), time[3]
    whole, _, fraction = seconds.partition(".")
    clock = f"{minutes:02}:{int(whole):02}" + (f".{fraction}" if fraction else "")
    return f"{hours}:{clock}" if hours else clock


def _without_counts(text: str) -> str:
    """A text without the numbers that count its intervals."""
    for counted in (_LINE_NUMBER, _CUES):
        numbers = [int(number) for number in counted.findall(text)]
        if numbers and numbers == list(range(1, len(numbers) + 1)):
            text = counted.sub("", text)
    return _COUNTS.sub(" ", text)


def _without_lengths(text: str) -> tuple[str, list[float]]:
    """A text without what it says of how long its intervals are, and that in seconds."""
    lengths: list[float] = []

    def take(said: re.Match[str]) -> str:
        if _RANGE.match(text, said.end()):
            return said[0]  # where an interval begins: it lasts 12 s to 20 s
        lengths.append(_seconds(said["time"]))
        return " "

    return _LASTS.sub(take, text), lengths


def _are_lengths(lengths: Sequence[float], intervals: Sequence[Interval]) -> bool:
    """Return True if intervals have the stated lengths, one by one, perhaps rounded."""
    return len(lengths) == len(intervals) and all(
        abs(end - start - length) <= _MAX_LENGTH_ERROR for length, (start, end) in zip(lengths, intervals, strict=True)
    )


def _is_bare(text: str) -> bool:
    return not text.strip(" \n\t.*_\"'")


def _has_digit(text: str) -> bool:
    return any("0" <= character <= "9" for character in text)


def _from_json(text: str) -> tuple[Interval, ...] | None:
    """The intervals of a JSON value; None where the text is no JSON."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except _UnreadableAnswer:
        raise
    except (ValueError, RecursionError):
        return None
    if isinstance(value, Mapping) and len(value) == 1:
        ((name, value),) = value.items()
        if "frame" in name.lower():
            raise _UnreadableAnswer
        if isinstance(value, str):
            return _from_text(value)
    pair = _pair(value)
    if pair is not None:
        return (pair,)
    if not isinstance(value, list):
        raise _UnreadableAnswer
    pairs = [_pair(item) for item in value]
    if not all(pairs):
        raise _UnreadableAnswer
    return tuple(pair for pair in pairs if pair)


def _refuse(constant: str) -> NoReturn:
    raise _UnreadableAnswer  # NaN and the infinities


def _pair(value: Any) -> Interval | None:
    if isinstance(value, Mapping):
        names = next((names for names in _NAMES if set(names) == set(value)), None)
        value = [value[name] for name in names] if names else None
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        return None
    ends = [_json_seconds(end) for end in value]
    return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])


def _json_seconds(value: Any) -> float | None:
    if isinstance(value, str):
        found = _TIME.fullmatch(value.strip())
        return _seconds(found["time"]) if found else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _bounded(float(value) if abs(value) <= MAX_SECONDS else math.inf)


def _seconds(time: str) -> float:
    *larger, last = time.split(":")
    parts = [*map(float, larger), float(last)]
    if any(part >= 60 for part in parts[1:]):
        raise _UnreadableAnswer
    total = 0.0
    for part in parts:
        total = total * 60 + part
    return _bounded(total)


def _bounded(seconds: float) -> float:
    if not 0 <= seconds <= MAX_SECONDS:
        raise _UnreadableAnswer
    return seconds
