"""``seek_video_frames``: the frames of a stretch that match a text and differ from one another (TimeSearch-R;
released code for the limits)."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentic_video.tools.base import ToolError
from agentic_video.types.text import is_unicode
from agentic_video.video.sampling import uniform_indices

NAME = "seek_video_frames"
OPEN_END = 65_535.0
"""End in seconds of a stretch whose end isn't given: later than any video's."""
LEAST_POOL = 4
"""Frames that are searched in a video of less than two seconds."""


@dataclass(frozen=True)
class SeekRequest:
    """A legal request: seconds, the most frames, and a text; an empty text asks for evenly spaced frames."""

    query: str
    start: float
    end: float
    count: int


def check_seek(arguments: Mapping[str, Any], duration: float, max_frames: int, max_query_chars: int) -> SeekRequest:
    """Read a request; each argument may be missing.

    As in the released code, a missing value or one that is no number gets its default, and a number of frames beyond
    the limits the nearest within. Only a stretch without frames and a bad query are illegal.
    """
    query = arguments.get("query")
    query = "" if query is None else str(query).strip()
    if len(query) > max_query_chars:
        raise ToolError(f"query must have at most {max_query_chars} characters")
    if not is_unicode(query):
        raise ToolError("query must be valid text")
    start = max(_number(arguments.get("start_time"), 0.0), 0.0)
    end = _number(arguments.get("end_time"), OPEN_END)
    if start > duration or end < 0:
        raise ToolError(f"the stretch lies outside the video, which lasts {duration:.1f} seconds")
    if end < start:
        raise ToolError("start_time is after end_time")
    count = math.trunc(_number(arguments.get("num_frames"), float(max_frames)))
    return SeekRequest(query, start, min(end, duration), min(max(count, 1), max_frames))


def _number(value: Any, default: float) -> float:
    """A finite number, also one written as text; the default for whatever else a model wrote."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return default
    try:
        read = float(value)
    except (ValueError, OverflowError):
        return default
    return read if math.isfinite(read) else default


def pool_indices(num_frames: int, duration: float, fps: float, max_frames: int) -> list[int]:
    """The searched frames: ``fps`` a second, evenly spread, at most ``max_frames``, ends included."""
    wanted = max(math.floor(min(duration * fps, max_frames)), LEAST_POOL)
    return uniform_indices(num_frames, min(wanted, num_frames))


def within(pool: Sequence[int], start: float, end: float) -> list[int]:
    """The frames of an ascending pool between two positions (:meth:`~agentic_video.tools.base.Video.frame_positions`),
    and the nearest one on each side, so that no stretch is empty."""
    # A time that should be a frame's own isn't past it by a rounding error.
    first = max(bisect_right(pool, start + 1e-6) - 1, 0)
    last = min(bisect_left(pool, end - 1e-6), len(pool) - 1)
    return list(pool[first : max(first, last) + 1])
