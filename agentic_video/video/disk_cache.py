"""Decoded frames on a local disk, so that the next epoch or the next run needn't decode them again.

One file holds one frame, raw: a frame of 448 x 224 takes 300 kB, so that 100 GB are 340,000 files, far fewer than a
file system of that size has room for, and each can be written, read and dropped by itself. They are spread over 256
folders. Files are written beside their place and moved there, so that several processes may share a folder; the least
recently used ones make room.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import PIL

from agentic_video.types.frame import image_key
from agentic_video.video.identity import VideoIdentity

logger = logging.getLogger(__name__)

_MAGIC = b"frame1"
_HEADER_BYTES = 80
_SHARE = 16
"""A process counts the folder's bytes anew when it has written this part of the bound."""
_KEEP = 0.9
"""Of the bound, what is left after making room."""
_WAITING = 64
"""Frames that wait to be written; more are left out."""
_FORGOTTEN_SECONDS = 3600.0
"""Age of a half-written file that nobody will finish."""


@dataclass(frozen=True)
class FrameAddress:
    """What decides a frame's pixels.

    Attributes:
        video: The file as it is now.
        index: The frame's position in presentation order.
        size: (width, height) in pixels; None for the video's own.
        backend: What decodes it.
    """

    video: VideoIdentity
    index: int
    size: tuple[int, int] | None
    backend: str

    @property
    def name(self) -> str:
        """Of its file; another version of the libraries that decode and resize gives it another name."""
        text = repr((self, av.__version__, PIL.__version__))
        return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


class DiskCache:
    """Frames in a folder, bounded in bytes; thread-safe, and safe beside other processes that use the folder.

    Nothing that goes wrong with the disk is an error: a frame that can't be read is decoded again, and when one can't
    be written, that is said once and no more are written.

    Args:
        folder: Is made if it isn't there; on a disk of this machine.
        max_bytes: Most bytes of files; a sixteenth more for each process that writes.
    """

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder = Path(folder).expanduser()
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._writer = ThreadPoolExecutor(1, "frame-disk")
        self._waiting = 0
        self._uncounted: float = float("inf")  # what an earlier run has left isn't known yet
        self._writes = True

    def get(self, address: FrameAddress) -> tuple[np.ndarray, str] | None:
        """A frame's image, read-only, and its key; None if it isn't there, or isn't what was written."""
        path = self._path(address)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        found = _unpack(data)
        with contextlib.suppress(OSError):
            if found is None:
                path.unlink()
            else:
                os.utime(path)
        return found

    def put(self, address: FrameAddress, image: np.ndarray, key: str) -> None:
        """Have a frame written soon; left out while the disk can't keep up."""
        with self._lock:
            if not self._writes or self._waiting >= _WAITING:
                return
            self._waiting += 1
        self._writer.submit(self._write, self._path(address), image, key)

    def flush(self) -> None:
        """Wait until what was put is written."""
        self._writer.submit(lambda: None).result()

    def _path(self, address: FrameAddress) -> Path:
        name = address.name
        return self._folder / name[:2] / name[2:]

    def _write(self, path: Path, image: np.ndarray, key: str) -> None:
        part = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
        try:
            if not self._writes or path.exists():
                return
            if self._uncounted > self._max_bytes / _SHARE:
                self._make_room()
            path.parent.mkdir(parents=True, exist_ok=True)
            data = _pack(image, key)
            part.write_bytes(data)
            os.replace(part, path)
            self._uncounted += len(data)
        except OSError as error:
            self._writes = False
            with contextlib.suppress(OSError):
                part.unlink()
            logger.warning(
                "%s: decoded frames are no longer kept on disk (%s); free or mend it, or set frame_store.disk_folder "
                "to another folder",
                self._folder,
                error,
            )
        finally:
            with self._lock:
                self._waiting -= 1

    def _make_room(self) -> None:
        """Drop the least recently used files, if there are more than the bound allows."""
        files = sorted(self._files())
        held = sum(size for _, size, _ in files)
        forgotten = time.time() - _FORGOTTEN_SECONDS
        room = held if held <= self._max_bytes * (1 - 1 / _SHARE) else self._max_bytes * _KEEP
        for used, size, path in files:
            half_written = path.name.startswith(".")
            if (half_written and used < forgotten) or (not half_written and held > room):
                with contextlib.suppress(OSError):
                    path.unlink()
                held -= size
        self._uncounted = 0

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """When it was used (seconds since the epoch), bytes and path of every file."""
        for folder in self._folder.glob("[0-9a-f][0-9a-f]"):
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        status = entry.stat()
                        yield status.st_mtime, status.st_size, Path(entry.path)


def _pack(image: np.ndarray, key: str) -> bytes:
    header = b" ".join([_MAGIC, key.encode(), b"%d %d" % (image.shape[1], image.shape[0])])
    return header.ljust(_HEADER_BYTES) + np.ascontiguousarray(image).tobytes()


def _unpack(data: bytes) -> tuple[np.ndarray, str] | None:
    try:
        magic, key, width, height = data[:_HEADER_BYTES].split()
        image = np.frombuffer(data, np.uint8, offset=_HEADER_BYTES).reshape(int(height), int(width), 3)
    except ValueError:
        return None
    if magic != _MAGIC or image_key(image) != key.decode("ascii", "replace"):
        return None
    return image, key.decode()
