"""Files that others add lines to while they are read."""

import json
from collections.abc import Iterator
from pathlib import Path

Signature = tuple[int, int, int]
"""Of a file: when it is the same, so is what the file holds."""

_TAIL = 4096
"""Bytes before the place that was reached by which a file is known again."""


def signature(file: Path) -> Signature | None:
    """Tells a changed file from an unchanged one; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


class GrowingFile:
    """A file of json lines, read from where the last reading ended.

    Args:
        path: The file.

    Attributes:
        count: Line breaks that were read so far.
        unfinished: Whether something follows that isn't a whole line.
        anew: Whether the latest reading began anew: the file was written over since the one before it.
        generation: How often it was written over.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.unfinished = False
        self.anew = False
        self.generation = 0
        self._offset = 0
        self._tail = b""
        self._seen: Signature | None = None

    def lines(self) -> Iterator[tuple[int, bytes]] | None:
        """New lines with their numbers, empty ones left out; None where the file hasn't changed.

        A last line without a line break is taken when it is a whole JSON object, which no part of one is, and left for
        the next time otherwise.

        Raises:
            OSError: The file can't be read.
        """
        now = signature(self.path)
        if now is not None and now == self._seen:
            return None
        with self.path.open("rb") as file:
            file.seek(max(0, self._offset - len(self._tail)))
            self.anew = file.read(len(self._tail)) != self._tail
        if self.anew:
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
