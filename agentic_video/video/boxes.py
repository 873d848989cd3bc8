"""Claims of an MP4 file's boxes (ISO/IEC 14496-12), read before FFmpeg allocates tables for them.

A few bytes can claim billions of frames. Malformed boxes are left to FFmpeg.
"""

import os
from dataclasses import dataclass

import numpy as np

_PARENTS = frozenset(
    {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf", b"mvex", b"edts", b"dinf", b"udta", b"tref"}
)
_FIRST = frozenset({b"ftyp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"sidx", b"uuid"})
_DEPTH = 8
_MOST_BOXES = 2_000_000


@dataclass(frozen=True)
class Boxes:
    """Claims of an MP4 file about itself."""

    typed: bool = False
    """It begins as MP4 files do (``ftyp``)."""
    indexed: bool = False
    """It has an index (``moov``)."""
    samples: int = 0
    """Most samples that a track claims; in a fragmented file, all of its fragments together."""
    compressed: bool = False
    """Its index is compressed, so that it can't be inspected."""
    endless: bool = False
    """It has too many boxes to inspect."""
    cut: bool = False
    """It ends before its media data do."""


def read_boxes(path: str) -> Boxes:
    """Walk the boxes of a file; all defaults if it isn't an MP4."""
    with open(path, "rb") as file:
        head = file.read(8)
        if len(head) < 8 or head[4:8] not in _FIRST:
            return Boxes()
        return _BoxWalker(file.fileno()).boxes(head[4:8] == b"ftyp")


class _BoxWalker:
    # Read piece by piece, not mapped into memory: a failing disk would kill the process.

    def __init__(self, descriptor: int):
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._seen = 0
        self._indexed = self._compressed = self._cut = False
        self._most = self._fragments = 0

    def boxes(self, typed: bool) -> Boxes:
        self._walk(0, self._size, 0)
        samples = max(self._most, self._fragments)
        return Boxes(typed, self._indexed, samples, self._compressed, self._seen > _MOST_BOXES, self._cut)

    def _walk(self, start: int, end: int, depth: int) -> None:
        while start + 8 <= end and self._seen <= _MOST_BOXES:
            self._seen += 1
            head = os.pread(self._descriptor, 16, start)
            if len(head) < 8:
                return
            length, kind, body = int.from_bytes(head[:4], "big"), head[4:8], start + 8
            if length == 1 and start + 16 <= end and len(head) == 16:
                length, body = int.from_bytes(head[8:], "big"), start + 16
            stop = end if length == 0 else start + length
            if stop < body:
                return
            self._cut = self._cut or (kind == b"mdat" and stop > end)
            self._look(kind, body, min(stop, end), depth)
            start = stop

    def _look(self, kind: bytes, body: int, end: int, depth: int) -> None:
        self._indexed = self._indexed or kind == b"moov"
        self._compressed = self._compressed or kind == b"cmov"
        if kind in _PARENTS and depth < _DEPTH:
            self._walk(body, end, depth + 1)
        elif kind == b"stsz" and end - body >= 12:
            self._most = max(self._most, self._number(body + 8))
        elif kind in (b"stts", b"ctts") and end - body >= 8:
            count = min(self._number(body + 4), (end - body - 8) // 8)
            table = os.pread(self._descriptor, 8 * count, body + 8)
            pairs = np.frombuffer(table[: len(table) // 8 * 8], dtype=">u4")
            self._most = max(self._most, int(pairs[::2].sum(dtype=np.uint64)))
        elif kind == b"trun" and end - body >= 8:
            self._fragments += self._number(body + 4)

    def _number(self, place: int) -> int:
        return int.from_bytes(os.pread(self._descriptor, 4, place), "big")
