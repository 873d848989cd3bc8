"""Which video a file is: what everything that is remembered of a video is kept under."""

from __future__ import annotations

import os
from dataclasses import dataclass

from agentic_video.video.errors import raise_video_error


@dataclass(frozen=True)
class VideoIdentity:
    """A video file as it is now: a changed file is another one.

    Attributes:
        path: The file.
        inode: Its number in the file system; another machine may see another one.
        mtime_ns: When it was last changed, in nanoseconds.
        size: Bytes.
    """

    path: str
    inode: int
    mtime_ns: int
    size: int


def identify(path: str) -> VideoIdentity:
    """The identity of a file.

    Raises:
        VideoError: It can't be found.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise_video_error(path, error)
    return VideoIdentity(path, status.st_ino, status.st_mtime_ns, status.st_size)
