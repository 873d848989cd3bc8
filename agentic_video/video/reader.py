"""The interface of video readers, whichever backend decodes.

Index ``i`` always means the i-th frame in presentation order of a full sequential decode. Times are the file's real
presentation times in seconds, counted from the file's start: when its earliest stream starts, picture or sound. The
first frame is at 0 unless the sound starts earlier; ``VideoInfo.start_time`` is its time on the file's own clock.

Damage: a frame that is missing, or depends on a packet which does not decode, raises VideoError and keeps its index;
:meth:`VideoReader.iter_decoded` yields such errors as values and continues. Wrong bits that decode all the same are
beyond this: FFmpeg conceals them, and the concealed picture is returned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from agentic_video.video.errors import Deadline, VideoError
from agentic_video.video.index import VideoIndex, VideoInfo

RgbConverter = Callable[[], np.ndarray]
"""Converts a decoded frame to an RGB uint8 array of shape (height, width, 3); call it on any thread, once."""


class VideoReader(ABC):
    """An open video; a context manager. Not thread-safe.

    Args:
        path: Video file.
        index: Its index; opening the same file again with it skips demuxing.
        time_limit: Seconds that each :meth:`read` may take; None for no limit.
    """

    def __init__(self, path: str, index: VideoIndex, time_limit: float | None) -> None:
        self._path = path
        self.index = index
        self._time_limit = time_limit

    @property
    def info(self) -> VideoInfo:
        """Facts about the video."""
        return self.index.info

    @property
    def timestamps(self) -> npt.NDArray[np.float64]:
        """Presentation times in seconds since the file's start, shape (num_frames,), read-only."""
        return self.index.timestamps

    def read(self, indices: Sequence[int]) -> list[np.ndarray]:
        """Decode frames.

        Args:
            indices: Frame indices in any order; duplicates are allowed, and share one array.

        Returns:
            RGB uint8 arrays of shape (height, width, 3) in the requested order.

        Raises:
            VideoError: ``out_of_range`` before anything is decoded; ``corrupt``, ``truncated`` or ``timeout`` if a
                frame is not available.
        """
        images: dict[int, np.ndarray] = {}
        for index, convert in self.iter_decoded(indices, self._time_limit):
            if isinstance(convert, VideoError):
                raise convert
            images[index] = convert()
        return [images[int(index)] for index in indices]

    def iter_decoded(
        self, indices: Sequence[int], time_limit: float | None
    ) -> Iterator[tuple[int, RgbConverter | VideoError]]:
        """Decode each distinct frame once, in no promised order, and leave the conversion to RGB to the caller.

        Each frame that isn't converted yet holds one of the decoder's pictures.

        Yields:
            (index, its converter, or the error of a damaged frame).

        Raises:
            VideoError: ``out_of_range`` before anything is decoded, ``timeout``, or an error that ends the reading.
        """
        wanted = sorted({int(index) for index in indices})
        for index in wanted:
            if not 0 <= index < self.info.num_frames:
                raise VideoError(
                    self._path,
                    "out_of_range",
                    f"frame {index} was asked for but the video has frames 0 to {self.info.num_frames - 1}",
                )
        return self._decode(wanted, Deadline(self._path, time_limit))

    @abstractmethod
    def _decode(self, wanted: list[int], deadline: Deadline) -> Iterator[tuple[int, RgbConverter | VideoError]]:
        """Decode frames (ascending, distinct, in range)."""

    @abstractmethod
    def close(self) -> None:
        """Release the file and the decoder; does nothing if closed already."""

    def __enter__(self) -> VideoReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
