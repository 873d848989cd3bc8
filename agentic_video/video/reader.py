"""What every reader of videos promises, whichever backend decodes.

Index ``i`` always means the i-th frame in presentation order of a full sequential decode. Times are the file's real
presentation times in seconds, counted from the file's start: when its earliest stream starts, picture or sound. The
first frame is at 0 unless the sound starts earlier; where the file's own clock puts it is ``VideoInfo.start_time``.

Damage: a frame that is missing, or that leans on a packet which does not decode, raises VideoError and keeps its index.
:meth:`VideoReader.attempt` gives such errors as values, and goes on.
Bits that are wrong yet decode are beyond this: FFmpeg conceals them, and the concealed picture is returned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from agentic_video.video.deadline import Deadline
from agentic_video.video.errors import VideoError
from agentic_video.video.index import VideoIndex, VideoInfo

Developer = Callable[[], np.ndarray]
"""Makes of a decoded frame an RGB uint8 array of shape (height, width, 3); may be called on any thread, once."""


class VideoReader(ABC):
    """An open video; a context manager. Not thread-safe.

    Args:
        path: Video file.
        index: Its index.
        time_limit: Seconds that each :meth:`read` may take; None for no limit.
    """

    def __init__(self, path: str, index: VideoIndex, time_limit: float | None) -> None:
        self._path = path
        self._index = index
        self._time_limit = time_limit

    @property
    def info(self) -> VideoInfo:
        """Facts about the video."""
        return self._index.info

    @property
    def timestamps(self) -> npt.NDArray[np.float64]:
        """Presentation times in seconds since the file's start, shape (num_frames,), read-only."""
        return self._index.timestamps

    @property
    def index(self) -> VideoIndex:
        """The index, to open the same file again without demuxing it."""
        return self._index

    def read(self, indices: Sequence[int]) -> list[np.ndarray]:
        """Decode frames.

        Args:
            indices: Frame indices in any order; duplicates are allowed.

        Returns:
            RGB uint8 arrays of shape (height, width, 3), one per index in the asked order; duplicates share one array.

        Raises:
            VideoError: ``out_of_range`` before anything is decoded; ``corrupt``, ``truncated`` or ``timeout`` when a
                frame cannot be had.
        """
        images = dict(self.stream(indices, self._time_limit))
        return [images[int(index)] for index in indices]

    def stream(self, indices: Sequence[int], time_limit: float | None) -> Iterator[tuple[int, np.ndarray]]:
        """Decode frames one at a time, so that a caller can shrink each before the next one is decoded.

        Args:
            indices: Frame indices in any order.
            time_limit: Seconds for all of them; None for no limit.

        Yields:
            (index, RGB uint8 array (height, width, 3)), each distinct index once, in no promised order.

        Raises:
            VideoError: See :meth:`read`.
        """
        for index, developer in self.attempt(indices, time_limit):
            if isinstance(developer, VideoError):
                raise developer
            yield index, developer()

    def attempt(self, indices: Sequence[int], time_limit: float | None) -> Iterator[tuple[int, Developer | VideoError]]:
        """Stream like :meth:`stream`, but the error of a damaged frame comes in its place, and the caller converts
        to RGB, in parallel with the decoding.

        Each frame that isn't developed yet holds one of the decoder's pictures.

        Yields:
            (index, what makes its array or why there is none), each distinct index once, in no promised order.

        Raises:
            VideoError: ``out_of_range`` before anything is decoded, ``timeout``, or what ends the whole reading.
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
    def _decode(self, wanted: list[int], deadline: Deadline) -> Iterator[tuple[int, Developer | VideoError]]:
        """The frames of ``wanted`` (ascending, distinct, in range), or what is wrong with them."""

    @abstractmethod
    def close(self) -> None:
        """Release the file and the decoder; harmless when closed already."""

    def __enter__(self) -> VideoReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
