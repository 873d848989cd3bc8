"""Frame-accurate reading of video files: the way in.

For what an index and a time mean, and what happens to damaged frames, see :mod:`agentic_video.video.reader`. Two
backends share that interface. PyAV (:mod:`agentic_video.video.pyav`) is exact for every file in the test suite. decord
(:mod:`agentic_video.video.decord`) is refused where it was found wrong.
"""

from __future__ import annotations

import os
from typing import Literal

from agentic_video.video.deadline import Deadline
from agentic_video.video.decord import DecordReader
from agentic_video.video.errors import VideoError, raise_video_error
from agentic_video.video.index import VideoIndex, build_index
from agentic_video.video.limits import USUAL, Hold, Limits, unheld
from agentic_video.video.pyav import PyavReader
from agentic_video.video.reader import VideoReader

Backend = Literal["pyav", "decord"]


def open_video(
    path: str | os.PathLike[str],
    backend: Backend = "pyav",
    time_limit: float | None = None,
    index: VideoIndex | None = None,
    limits: Limits = USUAL,
    hold: Hold = unheld,
    square: bool = False,
) -> VideoReader:
    """Open a video; use as a context manager.

    Args:
        path: Video file.
        backend: ``pyav`` (exact, the default) or ``decord``.
        time_limit: Seconds that opening, and later each ``read``, may take; checked between packets. None: no limit.
        index: The index of an earlier reader of the same unchanged file; saves demuxing it again.
        limits: How large the video may be.
        hold: Sets the memory aside that indexing needs.
        square: Whether frames with non-square pixels are made as wide as they are displayed; an index says it itself.

    Returns:
        The open reader.

    Raises:
        VideoError: When the file cannot be read as a video, or takes too long.
        ValueError: On an unknown backend or a time limit that is not positive.
    """
    if backend not in ("pyav", "decord"):
        raise ValueError(f"unknown backend {backend!r}: choose 'pyav' or 'decord'")
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"time_limit must be positive seconds or None, got {time_limit}")
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
