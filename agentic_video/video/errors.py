"""What can be wrong with a video."""

from __future__ import annotations

import errno
import os
from typing import Literal, NoReturn

import av
import av.error

from agentic_video.types.text import printable

Reason = Literal[
    "missing",
    "unreadable",
    "empty",
    "corrupt",
    "truncated",
    "no_video_stream",
    "no_frames",
    "timeout",
    "out_of_range",
    "unsupported",
    "changed",
    "machine",
]
"""``machine``: nothing is said of the video; the machine lacks memory or file descriptors, or a disk fails."""

_OF_THE_MACHINE = {
    errno.EMFILE: "this process has no file descriptor left; raise `ulimit -n`",
    errno.ENFILE: "the machine has no file descriptor left; raise fs.file-max",
    errno.ENOMEM: "no memory left for what it asks for; is it damaged? Else lower frame_store.max_bytes or .workers",
    errno.EIO: "reading the file failed; check the disk",
    errno.ESTALE: "the network disk has lost the file; check the disk",
    errno.ENODEV: "the disk is gone; check the disk",
    errno.ENXIO: "the disk is gone; check the disk",
    errno.ETIMEDOUT: "the network disk doesn't answer; check the disk",
    errno.EAGAIN: "the machine has no threads or locks left; raise its limits",
}
"""Errors that pass, or that another machine wouldn't have, and what to do about each."""


class VideoError(Exception):
    """A video, or a frame of it, that cannot be had.

    Attributes:
        path: The video file.
        reason: What kind of failure it is.
        message: What happened and what to do about it.
    """

    def __init__(self, path: str, reason: Reason, message: str) -> None:
        super().__init__(path, reason, message)
        self.path = path
        self.reason: Reason = reason
        self.message = message

    def bare(self) -> VideoError:
        """A copy without traceback and cause: to keep, to raise again, or to send to another process."""
        return VideoError(self.path, self.reason, self.message)

    def __str__(self) -> str:
        return printable(f"{self.path}: {self.message} [{self.reason}]")


def says_nothing_of_the_video(path: str, error: Exception) -> bool:
    """Whether an error is the machine's, or time has run out."""
    number = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None)
    if number == errno.EIO and _reads_well(path):  # FFmpeg says so of damage, too
        return False
    return isinstance(error, av.error.ExitError) or number in _OF_THE_MACHINE


def raise_video_error(path: str, error: Exception) -> NoReturn:
    """Raise what an error of the system or of FFmpeg means for a video.

    Args:
        path: The video file.
        error: What went wrong with it.

    Raises:
        VideoError: Always.
    """
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise VideoError(path, "missing", "no such file; check the path and the video root") from error
    if isinstance(error, PermissionError):
        raise VideoError(path, "unreadable", "permission denied; make the file readable for this user") from error
    if isinstance(error, (av.error.DecoderNotFoundError, av.error.PatchWelcomeError)):
        raise VideoError(
            path, "unsupported", f"FFmpeg cannot decode this file ({error}); re-encode it as H.264"
        ) from error
    if isinstance(error, av.error.ExitError):
        raise VideoError(path, "timeout", "reading takes too long; check the disk, or raise the time limit") from error
    if says_nothing_of_the_video(path, error):
        number = errno.ENOMEM if isinstance(error, MemoryError) else error.errno  # type: ignore[attr-defined]
        raise VideoError(path, "machine", f"{_OF_THE_MACHINE[number]} ({error})") from error
    if getattr(error, "errno", None) == errno.EIO:
        raise VideoError(path, "unreadable", f"damaged, or on a disk that fails ({error}); copy it again") from error
    raise VideoError(path, "corrupt", f"not a readable video ({error}); replace or re-encode the file") from error


def _reads_well(path: str) -> bool:
    """Whether a file can be read here and there."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            for place in range(0, size, max(1, size // 16)):
                file.seek(place)
                file.read(4096)
    except OSError:
        return False
    return True
