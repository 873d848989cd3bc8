"""Subtitles beside a video: files read (SubRip, and LongVideoBench's json), and what of them goes with which frames.

Converters put them before questions. Whoever else needs the words of a video reads them here as well.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".srt", ".json")
"""Of files that can be read."""
_TAG = re.compile(r"<[^>]+>")


@dataclass(frozen=True)
class Subtitle:
    """One subtitle.

    Attributes:
        start: When it appears, in seconds.
        end: When it disappears, in seconds; infinite where the file doesn't say, and nobody the video's length.
        text: In one line, without markup; not empty.
    """

    start: float
    end: float
    text: str


def read_subtitles(path: Path, offset: float = 0.0, length: float | None = None) -> tuple[Subtitle, ...]:
    """The subtitles of a file in its order, without empty ones.

    Args:
        path: A ``.srt`` file, or a ``.json`` file as LongVideoBench has them.
        offset: Seconds to take off the times, where the video is a part of a longer one.
        length: The video's length in seconds; what lies outside of it is left out, what reaches out is cut.

    Raises:
        OSError: The file can't be read.
        ValueError: It isn't in its format.
    """
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    kept = []
    for start, end, words in _of_json(text) if path.suffix == ".json" else _of_srt(text):
        start, end = start - offset, end - offset
        if words and end > 0 and (length is None or start < length):
            kept.append(Subtitle(max(0.0, start), end if length is None else min(end, length), words))
    return tuple(kept)


def spoken_at(subtitles: Sequence[Subtitle], times: Iterable[float]) -> tuple[Subtitle, ...]:
    """The subtitles that are on at one of these moments, each once, in their order.

    So Video-MME joins subtitles with frames: only what is said at the frames that a model is shown.

    Args:
        times: Of frames, in seconds.
    """
    moments = tuple(times)
    return tuple(one for one in subtitles if any(one.start <= moment < one.end for moment in moments))


def subtitle_lines(subtitles: Iterable[Subtitle]) -> str:
    """Subtitles as lines ``[start - end s] text``, or ``[from start s] text`` where there is no end."""
    return "\n".join(f"[{_stretch(one)}] {one.text}" for one in subtitles)


def _stretch(one: Subtitle) -> str:
    return f"{one.start:.1f} - {one.end:.1f} s" if math.isfinite(one.end) else f"from {one.start:.1f} s"


def seconds(time: str) -> float:
    """Seconds of ``MM:SS``, ``HH:MM:SS`` or ``HH:MM:SS,mmm``.

    Raises:
        ValueError: It is none.
    """
    parts = time.strip().replace(",", ".").split(":")
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"not a time: {time!r}")
    total = 0.0
    for part in parts:
        total = total * 60 + float(part)
    if not math.isfinite(total):
        raise ValueError(f"not a time: {time!r}")
    return total


def _of_srt(text: str) -> Iterator[tuple[float, float, str]]:
    for block in re.split(r"\r?\n\s*\r?\n", text.strip()):
        lines = block.splitlines()
        at = next((number for number, line in enumerate(lines) if "-->" in line), None)
        if at is None:
            continue
        start, _, stop = lines[at].partition("-->")
        # what may follow the second time is a position on the screen
        end = stop.split()[0] if stop.split() else ""
        yield seconds(start), seconds(end), _TAG.sub("", " ".join(lines[at + 1 :])).strip()


def _of_json(text: str) -> Iterator[tuple[float, float, str]]:
    """LongVideoBench's two forms: ``timestamp`` with ``text``, and ``start``, ``end`` with ``line``."""
    try:
        entries = json.loads(text)
    except RecursionError:
        raise ValueError("the file is nested too deeply") from None
    if not isinstance(entries, list):
        raise ValueError("expected a list of subtitles")
    for number, entry in enumerate(entries):
        try:
            if "timestamp" in entry:
                start, stop = entry["timestamp"]
                start = float(start)
                # The last one may have no end: it stays (LongVideoBench's own loader takes the video's length).
                yield start, math.inf if stop is None else float(stop), str(entry["text"]).strip()
            else:
                yield seconds(entry["start"]), seconds(entry["end"]), str(entry["line"]).strip()
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"subtitle {number} is not of a known form: {error}") from error
