"""Decoding with decord 0.6, which brings its own FFmpeg 4, if it agrees with the demuxed index.

It is refused (VideoError ``unsupported``) for files where a comparison frame by frame found it wrong:

- open GOPs (H.264, HEVC as x265 makes it by default) and gradual intra refresh: wrong frames after seeking;
- containers other than MP4 and Matroska/WebM: in MPEG-TS it begins at the second keyframe, in AVI and MPEG-PS its times
  are wrong, raw streams do not open;
- edit lists: it shows the frames that the file hides;
- rotation outside MP4: ignored; mirrored pictures: ignored;
- AV1: no decoder.

Its frame count, times and picture size must equal those of the index, too. It decodes in a separate process
(:mod:`agentic_video.video.decord_process`), which is killed at the time limit.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import NoReturn

import numpy as np

from agentic_video.video.errors import Deadline, VideoError
from agentic_video.video.index import ROTATIONS, VideoIndex
from agentic_video.video.reader import RgbConverter, VideoReader

PROCESS = "agentic_video.video.decord_process"
LONGEST = 3600.0
"""Seconds that decord may take if there is no time limit."""


class DecordReader(VideoReader):
    """A reader that decodes with decord, after a check that it agrees with the index."""

    _ended = False

    def __init__(self, path: str, index: VideoIndex, time_limit: float | None) -> None:
        super().__init__(path, index, time_limit)
        if not _installed():
            raise VideoError(
                path, "unsupported", "the decord backend needs `pip install decord` (x86-64 only); or use 'pyav'"
            )
        objection = _decord_objection(index)
        if objection is not None:
            self._refuse(objection)
        ours, theirs = Pipe()
        self._connection: Connection | None = ours
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", PROCESS, path, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        try:
            self._check_times(Deadline(path, time_limit))
        except BaseException:
            self.close()
            raise

    def _check_times(self, deadline: Deadline) -> None:
        times = self._answer(deadline)
        if isinstance(times, str):
            self._refuse(f"cannot open it ({times})")
        if len(times) != self.index.info.num_frames:
            self._refuse(f"finds {len(times)} frames where the file has {self.index.info.num_frames}")
        if np.abs(times - times[0] - (self.index.timestamps - self.index.timestamps[0])).max() > 1e-3:
            self._refuse("gives other frame times than the file")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._process.kill()
            connection.close()
            self._process.wait()

    def _decode(self, wanted: list[int], deadline: Deadline) -> Iterator[tuple[int, RgbConverter | VideoError]]:
        for index in wanted:
            try:
                self._running().send(index)
            except OSError as error:
                raise self._cannot_decode(index, error) from error
            picture = self._answer(deadline)
            if isinstance(picture, str):
                yield index, self._cannot_decode(index, picture)
                continue
            if picture.shape != (self.info.height, self.info.width, 3):
                self._refuse(f"gives pictures of shape {picture.shape}")
            yield index, partial(np.asarray, picture)

    def _running(self) -> Connection:
        if self._ended:
            raise VideoError(self._path, "corrupt", "decord's process was ended; try the pyav backend")
        if self._connection is None:
            raise ValueError("the reader is closed")
        return self._connection

    def _answer(self, deadline: Deadline) -> np.ndarray | str:
        """Receive an array, or an error's message."""
        connection = self._running()
        if not connection.poll(deadline.left() or LONGEST):
            self._end()  # it may never return
            deadline.check()
            raise VideoError(self._path, "timeout", f"decord gave no frame for {LONGEST:g} s; try the pyav backend")
        try:
            answer: np.ndarray | str = connection.recv()
        except (EOFError, OSError):
            self._end()
            raise VideoError(self._path, "corrupt", "decord's process ended; try the pyav backend") from None
        return answer

    def _end(self) -> None:
        self._ended = True
        self.close()

    def _cannot_decode(self, index: int, why: object) -> VideoError:
        return VideoError(self._path, "corrupt", f"decord cannot decode frame {index} ({why}); try the pyav backend")

    def _refuse(self, what: str) -> NoReturn:
        raise VideoError(self._path, "unsupported", f"decord {what}; use the pyav backend")


def _installed() -> bool:
    try:
        return importlib.util.find_spec("decord") is not None
    except ValueError:  # a test's stand-in has no spec
        return False


def _decord_objection(index: VideoIndex) -> str | None:
    """Reason why decord would return wrong frames of a file without noticing."""
    mp4 = "mp4" in index.container.split(",")
    if not mp4 and "matroska" not in index.container.split(","):
        return f"loses its place in {index.container} files"
    if not index.closed:
        return "gives wrong frames after seeking in a file with open GOPs or gradual refresh"
    if index.stretched:
        return "does not make the pixels of this file square"
    if index.orientation not in ROTATIONS or (any(index.orientation) and not mp4):
        return "does not turn the pictures of this file upright"
    return None
