"""Rows of data files, read and checked."""

import json
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq

from agentic_video.types.record import is_record
from agentic_video.types.row import RowError, VideoQA, absolute, located
from agentic_video.types.text import printable
from agentic_video.utils.host import cpu_limit
from agentic_video.video.damage import DAMAGED_SHARE, find_damaged, runs, too_damaged, too_short
from agentic_video.video.errors import VideoError
from agentic_video.video.open import open_video

logger = logging.getLogger(__name__)

PROBE_SECONDS = 120.0
"""Longest time that a video may take to be opened where rows are checked by ``probe``."""

DECODE_SECONDS = 7200.0
"""Longest time that decoding all of a video may take where rows are checked by ``decode``."""

MAX_REPORTED = 10
"""This many bad rows are named; the others are only counted."""


@dataclass(frozen=True)
class Problem:
    """A row that can't be used, and why."""

    where: str  # place of the row, see placed_rows
    message: str  # begins with the place
    kind: Literal["row", "video"] = "row"  # whether the row itself is at fault, or its video

    def __str__(self) -> str:
        return self.message


def reported(problems: Sequence[object], what: str, total: int | None = None) -> list[str]:
    """Lines about what is left out: the first ones by name, then how many.

    Args:
        problems: What is wrong, one for each; no lines without any.
        what: ``row``, ``record`` and so on.
        total: Of how many; None where unknown.
    """
    lines = [f"{what} left out: {printable(str(problem))}" for problem in problems[:MAX_REPORTED]]
    if problems:
        lines.append(f"{len(problems)}{'' if total is None else f' of {total}'} {what}s left out")
    return lines


def empty(paths: Sequence[object]) -> str:
    """End of a message that nothing in some files is usable: whether they were empty."""
    return f": the {'file is' if len(paths) == 1 else 'files are'} empty"


def placed_rows(path: Path) -> list[tuple[str, Any]]:
    """All rows of a parquet or jsonl file, each with its place; for a line that is no JSON the error about it.

    Places read ``a.jsonl line 3``, counted from 1, and ``a.parquet row 2``, counted from 0.

    Raises:
        RowError: The file is missing, of another kind, or can't be read, or holds lines and no object in any of them.
    """
    if not path.is_file():
        raise RowError(f"{path}: no such file; expected a parquet or jsonl file of rows")
    try:
        if path.suffix == ".parquet":
            return [(f"{path} row {number}", row) for number, row in enumerate(pq.read_table(path).to_pylist())]
        if path.suffix in (".jsonl", ".json"):
            with path.open(encoding="utf-8-sig") as lines:
                filled = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
                placed = [
                    (where := f"{path} line {number}", _row_of_line(line, where, first=not before))
                    for before, (number, line) in enumerate(filled)
                ]
            broken = [row for _, row in placed if isinstance(row, RowError)]
            if broken and not any(isinstance(row, Mapping) for _, row in placed):
                raise broken[0]
            return placed
    except RowError:
        raise
    except UnicodeDecodeError as error:
        with path.open("rb") as lines_of_bytes:
            number = 1 + sum(1 for _ in takewhile(_is_utf8, lines_of_bytes))
        raise RowError(f"{path} line {number}: isn't UTF-8: save the file as UTF-8") from error
    except (OSError, ValueError) as error:
        raise RowError(f"{path}: can't be read: {error}") from error
    raise RowError(f"{path}: expected .parquet or .jsonl")


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _row_of_line(line: str, where: str, *, first: bool) -> Any:
    """What a line holds, or the error about it."""
    try:
        return json.loads(line.rstrip("\r\n"))
    except json.JSONDecodeError as error:
        if first and line.lstrip().startswith("["):
            raise RowError(f"{where}: begins a list: write one object a line, without the list around them") from error
        reason = f"{error.msg} at column {error.colno}; each line must hold one whole row"
    except RecursionError:
        reason = "it is nested too deeply; each line must hold one whole row"
    except ValueError as error:
        reason = str(error)[:200]
    return RowError(f"{where}: is not json: {reason}")


def load_rows(
    paths: Sequence[str | Path],
    check_videos: str = "exists",
    *,
    hidden: bool = False,
    damaged_share: float = DAMAGED_SHARE,
) -> tuple[list[VideoQA], list[Problem]]:
    """Read and check the rows of several files.

    Args:
        paths: Parquet or jsonl files.
        check_videos: ``exists`` looks whether each video file is there and not empty, ``probe`` opens each one,
            ``decode`` decodes each frame of each one.
        hidden: Whether rows whose answers aren't published are of use; only an evaluation can play them.
        damaged_share: Share of a video's frames that may be damaged, for ``probe`` (which knows only of a missing end)
            and ``decode``.

    Returns:
        The good rows, their videos as absolute paths, and what is wrong with each bad one.

    Raises:
        RowError: A file can't be read at all, or holds records, or no row is left.
    """
    found: list[VideoQA | Problem] = []
    for path in map(Path, paths):
        placed = placed_rows(path)
        read = [raw for _, raw in placed if not isinstance(raw, RowError)]
        if read and all(map(is_record, read)):
            raise RowError(
                f"{path}: these are records (finished episodes), but rows (questions) are read here: name the file of "
                "rows that they were made of"
            )
        for where, raw in placed:
            try:
                if isinstance(raw, RowError):
                    raise raw
                if not isinstance(raw, Mapping):
                    hint = ": write one object a line, without the list around them" if isinstance(raw, list) else ""
                    raise RowError(f"{where}: expected an object, got {type(raw).__name__}{hint}")
                qa = VideoQA.from_row(raw, where)
                if qa.hidden and not hidden:
                    raise RowError(f"{where}: field 'answer' isn't published (extra_info.answer_hidden): evaluate only")
                qa = replace(located(qa, path.parent), video=absolute(path.parent, qa.video))
            except RowError as error:
                found.append(Problem(where, printable(str(error))))
                continue
            found.append(qa)
    videos = list(dict.fromkeys(qa.video for qa in found if isinstance(qa, VideoQA)))
    checked = dict(zip(videos, video_problems(videos, check_videos, damaged_share), strict=True))
    rows: list[VideoQA] = []
    problems: list[Problem] = []
    for entry in found:
        if isinstance(entry, Problem):
            problems.append(entry)
        elif problem := checked[entry.video]:
            problems.append(Problem(entry.where, printable(f"{entry.where}: field 'video': {problem}"), "video"))
        else:
            rows.append(entry)
    if not rows:
        first = f"; the first problem: {problems[0]}" if problems else empty(paths)
        raise RowError(f"no usable row in {[str(path) for path in paths]}{first}")
    return rows, problems


def video_problems(videos: Sequence[str], check: str, damaged_share: float = DAMAGED_SHARE) -> list[str]:
    """Return the problem of each of some videos (see :func:`video_problem`); several are opened at a time."""
    if check == "exists":
        return [video_problem(video, check) for video in videos]
    with ThreadPoolExecutor(cpu_limit(), "check-videos") as pool:  # FFmpeg works without Python's lock
        return list(pool.map(lambda video: video_problem(video, check, damaged_share), videos))


def video_problem(video: str, check: str, damaged_share: float = DAMAGED_SHARE) -> str:
    """What is wrong with a video's file, if anything (see :func:`load_rows`)."""
    path = Path(video)
    try:
        if not path.is_file():
            return f"{video}: " + ("a folder; name the video's file" if path.is_dir() else "no such file")
        if path.stat().st_size == 0:
            return f"{video}: the file is empty"
    except (OSError, ValueError) as error:
        return f"{video[:200]}: {getattr(error, 'strerror', None) or error}"
    if check in ("probe", "decode"):
        try:
            with open_video(video, time_limit=PROBE_SECONDS) as reader:
                if short := too_short(reader.info, damaged_share):
                    return str(short)
                damaged = find_damaged(reader, DECODE_SECONDS) if check == "decode" else []
                if many := too_damaged(video, damaged, reader.info.num_frames, damaged_share):
                    return str(many)
                if damaged:
                    logger.warning(
                        "%s: %d of %d frames (%s) can't be decoded; the nearest readable ones will be shown",
                        *(video, len(damaged), reader.info.num_frames, runs(damaged)),
                    )
        except VideoError as error:
            if error.reason != "machine":  # it may be available later
                return str(error)
    return ""
