"""Working folders of long jobs: claims, locks, journals that survive a kill, and files written whole."""

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

_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
_CHUNK = 1 << 20


def claim_folder(
    folder: Path, settings: Mapping[str, Any], name: str, kind: str, known_later: Collection[str] = ()
) -> None:
    """Create the folder of a job, or resume one of the same settings; a folder without results takes any settings.

    Args:
        settings: Plain data on which the job's results depend.
        name: File in which the folder keeps them.
        kind: The job in messages, e.g. ``an evaluation``.
        known_later: Keys at any depth that the folder may lack or have as null, as an earlier version didn't know them;
            it takes their present values, and keeps its own where they are null now.

    Raises:
        SetupError: The folder holds a job with other settings; the message names the first difference.
    """
    file = folder / name
    wanted = json.loads(json.dumps(settings))
    kept = wanted
    if file.is_file() and _has_results(folder):
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise SetupError(f"{file}: can't be read ({error}): choose another --out, or remove that folder") from None
        if (unlike := difference(found, wanted, known_later)) is not None:
            key, before, now = unlike
            raise SetupError(
                f"{folder} holds {kind} with {key} = {before!r}, and now it is {now!r}: choose another --out, "
                "or remove that folder",
                key=key,
            )
        kept = _filled(found, wanted, known_later)
        if kept == found:
            return
    write_whole(file, [json.dumps(kept, indent=2) + "\n"])


def difference(found: Any, wanted: Any, known_later: Collection[str] = ()) -> tuple[str, Any, Any] | None:
    """Return the first key at which two settings differ as far as both are known, and both values.

    Args:
        found: Settings as a folder keeps them.
        wanted: Settings of another job, as JSON has them.
        known_later: See :func:`claim_folder`.
    """

    def differ(first: Any, second: Any, name: str) -> tuple[str, Any, Any] | None:
        if not isinstance(first, dict) or not isinstance(second, dict):
            return None if first == second else (name, first, second)
        below = (
            differ(first.get(key), second.get(key), f"{name}.{key}".lstrip(".")) for key in sorted({*first, *second})
        )
        return next((unlike for unlike in below if unlike is not None), None)

    return differ(_filled(found, wanted, known_later), _filled(wanted, found, known_later), "")


def _filled(settings: Any, others: Any, keys: Collection[str]) -> Any:
    """Add the values of some keys that only other settings have."""
    if not isinstance(settings, dict) or not isinstance(others, dict):
        return settings
    filled = {key: _filled(value, others.get(key), keys) for key, value in settings.items()}
    return filled | {key: others[key] for key in keys if filled.get(key) is None and others.get(key) is not None}


def _has_results(folder: Path) -> bool:
    """Return True if a folder holds a result, or another process writes there. Lists of failures aren't results."""
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


@contextmanager
def lock(path: Path, busy: SetupError | None = None) -> Iterator[None]:
    """Hold a file's lock; where a file system has no locks, continue without.

    Args:
        path: The lock's file; its folder is made.
        busy: Error to raise where another process holds it; without one, wait for that process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            assert busy is not None
            raise busy from None
        except OSError:
            pass
        yield


@contextmanager
def open_journal(path: Path, kind: str) -> Iterator[TextIO]:
    """Open a journal for appending: locked, and without the part of a last line that a kill left.

    Args:
        kind: The job in messages, e.g. ``evaluation``.

    Raises:
        SetupError: Another process has it open.
    """
    with path.open("a+b") as raw:
        try:
            fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(f"{path}: another process is writing this {kind}; wait for it or end it") from None
        raw.truncate(_whole_lines(raw))
        with _name_file(path), path.open("a", encoding="utf-8") as file:
            yield file


@contextmanager
def _name_file(path: Path) -> Iterator[None]:
    """Let errors of the disk name the file that is written: those of an open file don't."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _DISK_ERRORS:
            error.filename = str(path)
        raise


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
    """Flush a file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def check_output(out: Path, sources: Iterable[Path]) -> None:
    """Raise a SetupError where ``--out`` names a file that is read as an input."""
    if out.resolve() in {file.resolve() for file in sources}:
        raise SetupError(f"--out {out}: is read as the input; choose another name", key="--out")


def write_whole(path: Path, texts: Iterable[str]) -> None:
    """Write a file atomically: after an error, or a kill, the old file is there. Its folder is made."""
    with whole(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(texts)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield the name of a temporary file, which replaces ``path`` at the end (see :func:`write_whole`)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # a name of its own: others may write the same file at the same time
    part = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with _name_file(path):
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
