"""Files of long jobs: a journal that a kill can't spoil, settings that a folder belongs to, outputs that are whole."""

import errno
import fcntl
import json
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from agentic_video.utils.errors import SetupError


def claim_folder(
    folder: Path, settings: Mapping[str, Any], name: str, kind: str, known_later: Collection[str] = ()
) -> None:
    """Make the folder of a job, or resume one of the same settings.

    Args:
        folder: Is made where it is missing. One in which no result is yet takes any settings.
        settings: Plain data; all on which the job's results depend.
        name: Of the file in which the folder keeps them.
        kind: What messages call the job, e.g. ``an evaluation``.
        known_later: Keys, wherever they stand, that the folder may not know yet: of an earlier version, or null because
            there was no such thing. It then takes them as they are now, and keeps them where they are null now.

    Raises:
        SetupError: The folder holds a job with other settings; the message names the first difference.
    """
    file = folder / name
    wanted = json.loads(json.dumps(settings))
    if file.is_file() and _anything_done(folder):
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise SetupError(f"{file}: can't be read ({error}): choose another --out, or remove that folder") from None
        if (unlike := difference(found, wanted, known_later)) is not None:
            key, before, now = unlike
            raise SetupError(
                f"{folder} holds {kind} with {key} = {before!r}, and now it is {now!r}: choose another --out, "
                "or remove that folder"
            )
        if (known := _filled(found, wanted, known_later)) != found:
            write_whole(file, [json.dumps(known, indent=2) + "\n"])
        return
    write_whole(file, [json.dumps(wanted, indent=2) + "\n"])


def difference(found: Any, wanted: Any, known_later: Collection[str] = ()) -> tuple[str, Any, Any] | None:
    """The first key at which two settings differ as far as both are known, and both values; None where none does.

    Args:
        found: As a folder keeps them.
        wanted: The same of another job: what has gone through JSON.
        known_later: See :func:`claim_folder`.
    """
    return _difference(_filled(found, wanted, known_later), _filled(wanted, found, known_later))


def _filled(settings: Any, others: Any, keys: Collection[str]) -> Any:
    """Settings with those of some keys that only others have."""
    if not isinstance(settings, dict) or not isinstance(others, dict):
        return settings
    filled = {key: _filled(value, others.get(key), keys) for key, value in settings.items()}
    return filled | {key: others[key] for key in keys if filled.get(key) is None and others.get(key) is not None}


def _anything_done(folder: Path) -> bool:
    """Whether a folder holds a result, or another process is at it. Lists of what failed are none."""
    for path in folder.glob("*.jsonl"):
        if path.name.startswith("failures"):
            continue
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            if _whole_lines(file):
                return True
    return False


def _difference(found: Any, wanted: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first key at which two settings differ, and both values."""
    if not isinstance(found, dict) or not isinstance(wanted, dict):
        return None if found == wanted else (name, found, wanted)
    for key in sorted({*found, *wanted}):
        below = f"{name}.{key}" if name else key
        if (difference := _difference(found.get(key), wanted.get(key), below)) is not None:
            return difference
    return None


@contextmanager
def open_journal(path: Path, kind: str) -> Iterator[TextIO]:
    """Open a journal for appending.

    What a kill left of a last line is cut off. The file is locked: a second process would do everything twice.

    Args:
        path: The file; is made where it is missing.
        kind: What messages call the job, e.g. ``evaluation``.

    Yields:
        The file, for writing lines.

    Raises:
        SetupError: Another process has it open.
    """
    with path.open("a+b") as raw:
        try:
            fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(f"{path}: another process is writing this {kind}; wait for it or end it") from None
        raw.truncate(_whole_lines(raw))
        with _named(path), path.open("a", encoding="utf-8") as file:
            yield file


_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of the disk name the file that is written: those of an open file don't by themselves."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _OF_THE_DISK:
            error.filename = str(path)
        raise


_CHUNK = 1 << 20


def _whole_lines(file: BinaryIO) -> int:
    """Size in bytes of a file up to the end of its last whole line."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - _CHUNK)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def settle(file: TextIO) -> None:
    """Bring what was written to disk, for good."""
    file.flush()
    os.fsync(file.fileno())


def check_output(out: Path, sources: Iterable[Path]) -> None:
    """Make sure that an output doesn't take the place of what it is made from.

    Args:
        out: The file that ``--out`` names.
        sources: The files that are read.
    """
    if out.resolve() in {file.resolve() for file in sources}:
        raise SetupError(f"--out {out}: is read as the input; choose another name")


def write_whole(path: Path, texts: Iterable[str]) -> None:
    """Write a file that is there as a whole or not at all.

    Args:
        path: The file; its folder is made.
        texts: What it holds, one after the other.

    Raises:
        OSError: It can't be written; nothing is left of it.
    """
    with whole(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(texts)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """As :func:`write_whole`, for whoever writes a file by its name.

    Args:
        path: The file; its folder is made.

    Yields:
        The file to write, which takes the place of the other.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Of a name of its own: others may write the same file at the same time.
    part = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with _named(path):
            yield part
            with part.open("a", encoding="utf-8") as file:
                settle(file)
        part.replace(path)
    except OSError as error:
        if error.filename == str(part):
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
