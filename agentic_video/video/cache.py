"""Caches of what is known about videos, in memory and on disk, keyed by the file as it is now."""

import hashlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import av
import diskcache
import numpy as np
import PIL
from cachetools import LRUCache

from agentic_video.types.frame import image_key
from agentic_video.video.errors import raise_video_error

logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

_HEADER_BYTES = 80
_SHARDS = 8
_SHARD_BYTES = 64 * 2**10
"""Least bytes of an empty shard's database."""
_READERS = 4
_QUEUED_WRITES = 64
"""Frames that wait to be written; further ones are skipped."""


@dataclass(frozen=True)
class VideoIdentity:
    """A video file as it is now: a changed file has another identity."""

    path: str
    inode: int
    mtime_ns: int
    size: int


def identify(path: str) -> VideoIdentity:
    """Return the identity of a file, or raise VideoError if there is none."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise_video_error(path, error)
    return VideoIdentity(path, status.st_ino, status.st_mtime_ns, status.st_size)


class BoundedCache(LRUCache[K, V]):
    """LRU cache that counts evictions and skips a value larger than its bound. Not thread-safe."""

    def __init__(self, maxsize: int, getsizeof: Callable[[V], int] | None = None) -> None:
        super().__init__(maxsize, getsizeof)
        self.evicted = 0
        """Values dropped to make room; replaced and cleared ones don't count."""

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        if self.getsizeof(value) <= self.maxsize:
            held = len(self)
            super().__setitem__(key, value)
            self.evicted += held + 1 - len(self)


@dataclass(frozen=True)
class FrameAddress:
    """Everything that decides a frame's pixels."""

    video: VideoIdentity
    index: int
    size: tuple[int, int] | None
    backend: str

    @property
    def name(self) -> str:
        """Hash that also covers the versions of the libraries that decode and resize."""
        text = repr((self, av.__version__, PIL.__version__))
        return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


class DiskCache:
    """Decoded frames on a local disk, kept from run to run and bounded in bytes; the least recently used are evicted.

    Thread-safe, and processes may share the folder. A frame that can't be read is decoded again; after the first
    failed write a warning is logged and nothing more is written.
    """

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder = os.path.expanduser(folder)
        # Threads that last: each opens its own connection to each shard.
        self._readers = ThreadPoolExecutor(_READERS, "frame-disk-read")
        self._writer = ThreadPoolExecutor(1, "frame-disk-write")
        self._slots = threading.Semaphore(_QUEUED_WRITES)
        self._cache: diskcache.FanoutCache | None = None
        self._writes = True
        try:
            self._cache = diskcache.FanoutCache(
                self._folder,
                shards=max(1, min(_SHARDS, max_bytes // (16 * _SHARD_BYTES))),
                timeout=5.0,
                disk=_BytesDisk,
                size_limit=max_bytes,
                eviction_policy="least-recently-used",
            )
        except (OSError, sqlite3.Error) as error:
            self._stop_writing(error)

    def get(self, addresses: Sequence[FrameAddress]) -> list[tuple[np.ndarray, str] | None]:
        """Read frames: each one's image, read-only, and its key; None if it is absent or damaged."""
        return list(self._readers.map(self._read, addresses))

    def _read(self, address: FrameAddress) -> tuple[np.ndarray, str] | None:
        if self._cache is None:
            return None
        try:
            data = self._cache.get(address.name)
            found = None if data is None else _unpack(data)
            if data is not None and found is None:
                self._cache.delete(address.name)
        except (OSError, sqlite3.Error, TypeError, ValueError):
            return None
        return found

    def put(self, address: FrameAddress, image: np.ndarray, key: str) -> None:
        """Write a frame in the background; skipped while the disk can't keep up."""
        if self._writes and self._slots.acquire(blocking=False):
            self._writer.submit(self._write, address.name, image, key)

    def flush(self) -> None:
        """Wait until all queued frames are written."""
        self._writer.submit(lambda: None).result()

    def _write(self, name: str, image: np.ndarray, key: str) -> None:
        try:
            if self._writes and self._cache is not None and name not in self._cache:
                self._cache.set(name, _pack(image, key))
        except (OSError, sqlite3.Error) as error:
            self._stop_writing(error)
        finally:
            self._slots.release()

    def _stop_writing(self, error: Exception) -> None:
        self._writes = False
        logger.warning(
            "%s: decoded frames are no longer kept on disk (%s); free or mend it, or set frame_store.disk_folder "
            "to another folder",
            self._folder,
            error,
        )


class _BytesDisk(diskcache.Disk):
    """Reads bytes only: a folder that others can write to must not bring pickles."""

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        if mode not in (diskcache.core.MODE_RAW, diskcache.core.MODE_BINARY):
            raise ValueError("the cache holds a value that is no frame")
        return super().fetch(mode, filename, value, read)


def _pack(image: np.ndarray, key: str) -> bytes:
    header = b"%s %d %d" % (key.encode(), image.shape[1], image.shape[0])
    return header.ljust(_HEADER_BYTES) + np.ascontiguousarray(image).tobytes()


def _unpack(data: bytes) -> tuple[np.ndarray, str] | None:
    try:
        key, width, height = data[:_HEADER_BYTES].split()
        image = np.frombuffer(data, np.uint8, offset=_HEADER_BYTES).reshape(int(height), int(width), 3)
    except ValueError:
        return None
    return (image, key.decode()) if image_key(image) == key.decode("ascii", "replace") else None
