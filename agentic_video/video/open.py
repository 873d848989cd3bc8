"""Opening a video with one of two backends: PyAV, exact for every file in the test suite, or decord."""

import os
from typing import Literal

from agentic_video.video.decord import DecordReader
from agentic_video.video.errors import Deadline, VideoError, raise_video_error
from agentic_video.video.index import VideoIndex
from agentic_video.video.indexing import build_index
from agentic_video.video.limits import DEFAULT_LIMITS, Hold, Limits, no_hold
from agentic_video.video.pyav import PyavReader
from agentic_video.video.reader import VideoReader

Backend = Literal["pyav", "decord"]


def open_video(
    path: str | os.PathLike[str],
    backend: Backend = "pyav",
    time_limit: float | None = None,
    index: VideoIndex | None = None,
    limits: Limits = DEFAULT_LIMITS,
    hold: Hold = no_hold,
    square: bool = False,
) -> VideoReader:
    """Open a video; use as a context manager.

    Args:
        path: Video file.
        backend: ``pyav`` or ``decord``, which is refused for files where it was found wrong.
        time_limit: Seconds that opening, and later each ``read``, may take; checked between packets. None: no limit.
        index: The index of an earlier reader of the same unchanged file; skips demuxing.
        limits: Bounds of the video.
        hold: Reserves the memory that indexing needs.
        square: Make frames with non-square pixels as wide as they are displayed; a given index decides itself.

    Raises:
        VideoError: The file cannot be read as a video, or takes too long.
    """
    name = os.fspath(path)
    deadline = Deadline(name, time_limit)
    _check_file(name)
    if index is None:
        index = build_index(name, deadline, limits, hold, square)
    if backend == "decord":
        return DecordReader(name, index, time_limit)
    return PyavReader(name, index, time_limit, limits)


def _check_file(path: str) -> None:
    try:
        if os.path.isdir(path):
            raise VideoError(path, "unsupported", "is a directory; give a video file")
        if os.path.getsize(path) == 0:
            raise VideoError(path, "empty", "the file has no bytes; copy or download it again")
    except OSError as error:
        raise_video_error(path, error)
