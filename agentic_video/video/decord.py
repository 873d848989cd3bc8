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

from __future__ import annotations

import importlib.util
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import NoReturn

import numpy as np

from agentic_video.video.decord_process import HEADER, REQUEST
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
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-m", PROCESS, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            self._check_times(Deadline(path, time_limit))
        except BaseException:
            self.close()
            raise

    def _check_times(self, deadline: Deadline) -> None:
        kind, _, _, content = self._answer(deadline)
        if kind == b"e":
            self._refuse(f"cannot open it ({content.decode(errors='replace')})")
        times = np.frombuffer(content, dtype=np.float64)
        if len(times) != self.index.info.num_frames:
            self._refuse(f"finds {len(times)} frames where the file has {self.index.info.num_frames}")
        if np.abs(times - times[0] - (self.index.timestamps - self.index.timestamps[0])).max() > 1e-3:
            self._refuse("gives other frame times than the file")

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()

    def _decode(self, wanted: list[int], deadline: Deadline) -> Iterator[tuple[int, RgbConverter | VideoError]]:
        for index in wanted:
            try:
                stdin = self._running().stdin
                assert stdin is not None
                stdin.write(REQUEST.pack(index))
                stdin.flush()
            except OSError as error:
                raise self._cannot_decode(index, error) from error
            kind, height, width, content = self._answer(deadline)
            if kind == b"e":
                yield index, self._cannot_decode(index, content.decode(errors="replace"))
                continue
            if (height, width) != (self.info.height, self.info.width) or len(content) != 3 * height * width:
                self._refuse(f"gives pictures of shape {(height, width)}")
            picture = np.frombuffer(content, dtype=np.uint8).reshape(height, width, 3)
            yield index, partial(np.asarray, picture)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._ended:
            raise VideoError(self._path, "corrupt", "decord's process was ended; try the pyav backend")
        if self._process is None:
            raise ValueError("the reader is closed")
        return self._process

    def _end(self) -> None:
        self._ended = True
        self.close()

    def _answer(self, deadline: Deadline) -> tuple[bytes, int, int, bytearray]:
        """Read the process' next answer: its kind, a picture's height and width, and its content."""
        kind, size, height, width = HEADER.unpack(self._read(HEADER.size, deadline))
        return kind, height, width, self._read(size, deadline)

    def _read(self, size: int, deadline: Deadline) -> bytearray:
        stdout = self._running().stdout
        assert stdout is not None
        pipe, content = stdout.fileno(), bytearray()
        while len(content) < size:
            if not select.select([pipe], [], [], deadline.left() or LONGEST)[0]:
                self._end()  # it may never come back
                deadline.check()
                raise VideoError(self._path, "timeout", f"decord gave no frame for {LONGEST:g} s; try the pyav backend")
            part = os.read(pipe, size - len(content))
            if not part:
                self._end()
                raise VideoError(self._path, "corrupt", "decord's process ended; try the pyav backend")
            content += part
        return content

    def _cannot_decode(self, index: int, why: object) -> VideoError:
        return VideoError(self._path, "corrupt", f"decord cannot decode frame {index} ({why}); try the pyav backend")

    def _refuse(self, what: str) -> NoReturn:
        raise VideoError(self._path, "unsupported", f"decord {what}; use the pyav backend")


def _installed() -> bool:
    try:
        return importlib.util.find_spec("decord") is not None
    except ValueError:  # what a test put there has no spec
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
