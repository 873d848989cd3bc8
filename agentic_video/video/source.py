"""Where frames come from: a store in this process, or the one of this node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentic_video.types.frame import Frame
from agentic_video.video.index import VideoInfo


class FrameSource(Protocol):
    """What gives a video's facts and frames, off the event loop."""

    async def aprobe(self, path: str) -> VideoInfo:
        """Facts about a video.

        Raises:
            VideoError: It can't be opened.
        """
        ...

    async def akeyframes(self, path: str) -> list[int]:
        """The indices of the frames that are decoded from their own packet alone, ascending; raises as aprobe."""
        ...

    async def aframes(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> list[Frame]:
        """Frames by index.

        Args:
            path: Video file.
            indices: Frame indices in any order; duplicates are allowed.
            size: (width, height) in pixels to resize to; None for the video's own.

        Returns:
            One frame per index in the asked order.

        Raises:
            VideoError: The video or a frame can't be had.
        """
        ...

    async def aframes_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> list[Frame]:
        """The frames closest to the given times (seconds), in the asked order; else as :meth:`aframes`."""
        ...


@dataclass(frozen=True)
class Served:
    """Frames, and what it took to serve them.

    Attributes:
        frames: One per asked index or time, in the asked order.
        decoded: How many were decoded for this request; the others were there, or under way for another one.
        decode_seconds: Seconds that this took.
    """

    frames: list[Frame]
    decoded: int
    decode_seconds: float


class ServingSource(FrameSource, Protocol):
    """A source that also says what its frames took."""

    async def aserve(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> Served:
        """As :meth:`aframes`, with what it took."""
        ...

    async def aserve_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> Served:
        """As :meth:`aframes_at`, with what it took."""
        ...

    async def aprefetch(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> int:
        """Have frames at hand while nothing else is to be done; returns how many are. Never raises VideoError."""
        ...

    async def aprefetch_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> int:
        """As :meth:`aprefetch`, the frames closest to the given times (seconds)."""
        ...
