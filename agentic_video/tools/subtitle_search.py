"""``subtitle_search``: the lines of a video's subtitles, or of its transcript, that match a text best (BM25)."""

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentic_video.tools.base import ToolError
from agentic_video.types.row import VideoQA
from agentic_video.video.errors import Reason, VideoError, is_machine_error
from agentic_video.video.subtitles import SUFFIXES, Subtitle, read_subtitles

NAME = "subtitle_search"
MAX_FILE_BYTES = 16 * 2**20
"""A larger file isn't read: a day of speech has less than one MiB."""
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
"""What is compared: words, and single characters of the scripts that put no space between words."""


@dataclass(frozen=True)
class SubtitleRequest:
    """A legal request.

    Attributes:
        query: What to look for, without surrounding white space.
        start: Seconds.
        end: Seconds, not before ``start``.
        count: Most lines, at least 1.
    """

    query: str
    start: float
    end: float
    count: int


def check_subtitle_search(
    arguments: Mapping[str, Any], duration: float, max_lines: int = 8, max_query_chars: int = 256
) -> SubtitleRequest:
    """Read a request.

    Args:
        arguments: ``query`` (text), and if they are there ``start_time`` and ``end_time`` (seconds) and ``num_lines``.
        duration: Length of the video in seconds.
        max_lines: Most lines of one call, and the default.
        max_query_chars: A longer query is refused.

    Raises:
        ToolError: There is no word to look for, the stretch isn't one within the video, or a number is none.
    """
    query = arguments.get("query")
    if not isinstance(query, str) or len(query) > max_query_chars or not _words(query):
        raise ToolError(f"query must be a text of at most {max_query_chars} characters with a word in it")
    start = _number(arguments, "start_time", 0.0)
    end = _number(arguments, "end_time", duration)
    if not 0 <= start <= end or start > duration:
        raise ToolError(f"start_time and end_time must be a stretch of the video, which lasts {duration:.1f} seconds")
    count = _number(arguments, "num_lines", max_lines)
    if not 1 <= count <= max_lines:
        raise ToolError(f"num_lines must be from 1 to {max_lines}")
    return SubtitleRequest(query.strip(), start, min(end, duration), int(count))


def _number(arguments: Mapping[str, Any], name: str, default: float) -> float:
    value = arguments.get(name, default)
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:
        pass
    raise ToolError(f"{name} must be a number")


def best_lines(subtitles: Sequence[Subtitle], request: SubtitleRequest, max_chars: int = 300) -> tuple[Subtitle, ...]:
    """The subtitles that match a request best: those that share a word with it, ranked by BM25.

    Args:
        subtitles: Of one video.
        request: What to look for; a subtitle belongs to its stretch if any of it is on then.
        max_chars: A longer text is cut there.

    Returns:
        At most ``request.count``, in order of time; of equally good ones the earlier.
    """
    from rank_bm25 import BM25Plus

    asked = _words(request.query)
    near = [one for one in subtitles if one.start <= request.end and one.end >= request.start]
    said = [_words(one.text) for one in near]
    sharing = [number for number, words in enumerate(said) if not set(asked).isdisjoint(words)]
    if not sharing:
        return ()
    scores = BM25Plus(said).get_scores(asked)
    best = sorted(sharing, key=lambda number: (-float(scores[number]), near[number].start))[: request.count]
    found = sorted((near[number] for number in best), key=lambda one: (one.start, one.end))
    return tuple(
        one if len(one.text) <= max_chars else replace(one, text=one.text[:max_chars] + "...") for one in found
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def subtitle_file(qa: VideoQA) -> Path | None:
    """Where the subtitles of a row's video are: ``extra_info.subtitles``, or a file beside the video with its name.

    Returns:
        None where there is neither.
    """
    named = qa.extra.get("subtitles")
    if isinstance(named, str) and named.endswith(SUFFIXES):
        return Path(named)
    beside = (Path(qa.video).with_suffix(suffix) for suffix in SUFFIXES)
    return next((path for path in beside if path.is_file()), None)


async def search_subtitles(
    path: Path, request: SubtitleRequest, offset: float = 0.0, max_chars: int = 300
) -> tuple[Subtitle, ...]:
    """:func:`best_lines` of a file; it is read once and searched beside the event loop.

    Args:
        path: See :func:`subtitle_file`.
        request: What to look for.
        offset: Seconds to take off the file's times (``extra_info.subtitle_offset``).
        max_chars: A longer line is cut there.

    Raises:
        VideoError: The file can't be read; the episode ends with a tool error.
    """
    return await asyncio.to_thread(_search, path, request, offset, max_chars)


def _search(path: Path, request: SubtitleRequest, offset: float, max_chars: int) -> tuple[Subtitle, ...]:
    if isinstance(offset, bool) or not isinstance(offset, int | float) or not math.isfinite(offset):
        raise VideoError(str(path), "corrupt", "the subtitles' offset must be a number of seconds")
    try:
        state = path.stat()
        if state.st_size > MAX_FILE_BYTES:
            raise VideoError(str(path), "unsupported", f"more than {MAX_FILE_BYTES} bytes of subtitles aren't read")
        subtitles = _read(path, offset, state.st_mtime_ns, state.st_size)
    except FileNotFoundError:
        raise VideoError(str(path), "missing", "no such file of subtitles") from None
    except OSError as error:
        reason: Reason = "machine" if is_machine_error(str(path), error) else "unreadable"
        raise VideoError(str(path), reason, f"the subtitles can't be read: {error.strerror or error}") from None
    except ValueError as error:
        raise VideoError(str(path), "corrupt", f"no subtitles: {error}") from None
    return best_lines(subtitles, request, max_chars)


@lru_cache(maxsize=64)
def _read(path: Path, offset: float, changed: int, size: int) -> tuple[Subtitle, ...]:
    """A file's subtitles, as long as it stays as it is."""
    return read_subtitles(path, offset)
