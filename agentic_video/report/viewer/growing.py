"""Files that grow while they are read."""

import json
from collections.abc import Iterator
from pathlib import Path

Signature = tuple[int, int, int]
"""Size, time and inode of a file: the same for unchanged content."""

_TAIL = 4096
"""Bytes before the reached place by which a file is recognized."""


def signature(file: Path) -> Signature | None:
    """Signature of a file; None without a file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


class GrowingFile:
    """A file of json lines, read from where the last reading ended.

    Attributes:
        count: Line breaks read so far.
        unfinished: True if an incomplete line follows.
        restarted: True if the latest reading began at the start, as the file was overwritten.
        generation: Number of times it was overwritten.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.unfinished = False
        self.restarted = False
        self.generation = 0
        self._offset = 0
        self._tail = b""
        self._seen: Signature | None = None

    def lines(self) -> Iterator[tuple[int, bytes]] | None:
        """New lines with their numbers, without empty ones; None for an unchanged file.

        A last line without a line break is taken when it is a whole JSON object, which no part of one is, and left for
        the next time otherwise.
        """
        now = signature(self.path)
        if now is not None and now == self._seen:
            return None
        with self.path.open("rb") as file:
            file.seek(max(0, self._offset - len(self._tail)))
            self.restarted = file.read(len(self._tail)) != self._tail
        if self.restarted:
            self.generation += 1
            self._offset, self._tail, self.count = 0, b"", 0
        self._seen = now
        return self._new()

    def _new(self) -> Iterator[tuple[int, bytes]]:
        self.unfinished = False
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n") and not _is_object(line):
                    self.unfinished = bool(line.strip())
                    return
                self._offset += len(line)
                self._tail = (self._tail + line)[-_TAIL:]
                number = self.count + 1
                self.count += line.endswith(b"\n")
                if line.strip():
                    yield number, line


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
