"""Decoding with decord 0.6, which brings its own FFmpeg 4, where it agrees with the demuxed index.

It is refused (VideoError ``unsupported``) where it was found wrong, frame by frame:

- open GOPs (H.264, HEVC as x265 makes it by default) and gradual intra refresh: wrong frames after seeking;
- containers other than MP4 and Matroska/WebM: in MPEG-TS it begins at the second keyframe, in AVI and MPEG-PS its times
  are wrong, raw streams do not open;
- edit lists: it shows the frames that the file hides;
- rotation outside MP4: ignored; mirrored pictures: ignored;
- AV1: no decoder.

Beyond these, its frame count, times and picture size must equal those of the demuxed index.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NoReturn

import numpy as np

from agentic_video.video.deadline import Deadline
from agentic_video.video.errors import VideoError
from agentic_video.video.index import ROTATIONS, VideoIndex
from agentic_video.video.reader import Developer, VideoReader


class DecordReader(VideoReader):
    """A reader that decodes with decord, once it has been seen to agree with the index.

    Raises:
        VideoError: decord isn't installed, or gives other frames than the file has.
    """

    def __init__(self, path: str, index: VideoIndex, time_limit: float | None) -> None:
        super().__init__(path, index, time_limit)
        try:
            import decord
        except ImportError as error:
            raise VideoError(
                path, "unsupported", "the decord backend needs `pip install decord` (x86-64 only); or use 'pyav'"
            ) from error
        objection = _decord_objection(index)
        if objection is not None:
            self._refuse(objection)
        decord.logging.set_level(decord.logging.QUIET)
        try:
            self._video: Any = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=1)
            count = len(self._video)
            spans = np.asarray(self._video.get_frame_timestamp(list(range(count))), dtype=np.float64)
        except Exception as error:
            self._refuse("cannot open it", error)
        if count != index.info.num_frames:
            self._refuse(f"finds {count} frames where the file has {index.info.num_frames}")
        if np.abs(spans[:, 0] - spans[0, 0] - (index.timestamps - index.timestamps[0])).max() > 1e-3:
            self._refuse("gives other frame times than the file")

    def close(self) -> None:
        self._video = None

    def _decode(self, wanted: list[int], deadline: Deadline) -> Iterator[tuple[int, Developer | VideoError]]:
        if self._video is None:
            raise ValueError("the reader is closed")
        for index in wanted:
            deadline.check()
            try:
                picture = self._video[index].asnumpy()
            except Exception as error:
                problem = f"decord cannot decode frame {index} ({error}); try the pyav backend"
                yield index, VideoError(self._path, "corrupt", problem)
                continue
            if picture.shape != (self.info.height, self.info.width, 3):
                self._refuse(f"gives pictures of shape {picture.shape}")
            yield index, partial(np.asarray, picture)

    def _refuse(self, what: str, error: Exception | None = None) -> NoReturn:
        detail = f" ({str(error).splitlines()[-1] if str(error) else type(error).__name__})" if error else ""
        raise VideoError(self._path, "unsupported", f"decord {what}{detail}; use the pyav backend") from error


def _decord_objection(index: VideoIndex) -> str | None:
    """Why decord would return wrong frames of a file without noticing."""
    mp4 = "mp4" in index.container.split(",")
    if not mp4 and "matroska" not in index.container.split(","):
        return f"loses its place in {index.container} files"
    if not index.closed:
        return "gives wrong frames after seeking in a file with open GOPs or gradual refresh"
    if index.stretched:
        return "does not make the pixels of this file square"
    if index.turn not in ROTATIONS or (any(index.turn) and not mp4):
        return "does not turn the pictures of this file upright"
    return None
