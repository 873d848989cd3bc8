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
    """A legal request.

    Attributes:
        query: What to look for, without surrounding white space; empty for evenly spaced frames.
        start: Seconds.
        end: Seconds, not before ``start``.
        count: Most frames, at least 1.
    """

    query: str
    start: float
    end: float
    count: int


def check_seek(arguments: Mapping[str, Any], duration: float, max_frames: int, max_query_chars: int) -> SeekRequest:
    """Read a request.

    As in the released code all but a stretch without frames is forgiven: what is missing or no number has its default,
    a number of frames beyond the limits is the nearest one within.

    Args:
        arguments: ``query`` (text), ``start_time`` and ``end_time`` (seconds), ``num_frames``; each may be missing.
        duration: Length of the video in seconds.
        max_frames: Most frames of one call, and the default.
        max_query_chars: A longer query is refused.

    Raises:
        ToolError: The stretch lies outside the video or ends before it starts, or the query is too long or no text.
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
    """The frames of a video that are searched: ``fps`` a second, evenly spread, first and last included.

    Args:
        num_frames: Frames in the video.
        duration: Its length in seconds.
        fps: Frames a second.
        max_frames: Most frames; a longer video's lie further apart.
    """
    wanted = max(math.floor(min(duration * fps, max_frames)), LEAST_POOL)
    return uniform_indices(num_frames, min(wanted, num_frames))


def within(pool: Sequence[int], start: float, end: float) -> list[int]:
    """The frames of a pool between two places, and the nearest one on each side, so that no stretch is empty.

    Args:
        pool: Frame numbers, ascending.
        start: A place (:meth:`~agentic_video.tools.base.Video.frame_positions`).
        end: One that isn't before ``start``.
    """
    # A time that should be a frame's own isn't past it by a rounding error.
    first = max(bisect_right(pool, start + 1e-6) - 1, 0)
    last = min(bisect_left(pool, end - 1e-6), len(pool) - 1)
    return list(pool[first : max(first, last) + 1])
