"""What can be wrong with a video."""

from __future__ import annotations

import errno
from typing import Literal, NoReturn

import av
import av.error

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
]


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
        return f"{self.path}: {self.message} [{self.reason}]"


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
    if isinstance(error, OSError) and error.errno == errno.EIO:
        raise VideoError(path, "unreadable", f"reading the file failed ({error}); check the disk") from error
    raise VideoError(path, "corrupt", f"not a readable video ({error}); replace or re-encode the file") from error
