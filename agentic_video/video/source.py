"""Requests for frames, and the sources that serve them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from agentic_video.types.frame import Frame
from agentic_video.video.index import VideoInfo
from agentic_video.video.sampling import nearest_indices


@dataclass(frozen=True)
class FrameRequest:
    """Frames of one video, by number or by time; without either, the video's facts alone."""

    path: str
    indices: Sequence[int] = ()
    """In any order; duplicates are allowed."""
    times: Sequence[float] = ()
    """Seconds; the frames closest to them, instead of ``indices``."""
    size: tuple[int, int] | None = None
    """(width, height) in pixels to resize to; None for the video's own."""
    keyframes: bool = False
    """Also list the frames that decode from their own packet alone."""
    prefetch: bool = False
    """Decode into the store in the background; the reply holds no frames."""


@dataclass(frozen=True)
class FrameReply:
    """Answer to a :class:`FrameRequest`."""

    info: VideoInfo
    frames: list[Frame] = field(default_factory=list)
    """In the requested order."""
    keyframes: list[int] = field(default_factory=list)
    """Ascending."""
    decoded: int = 0
    """Frames that were decoded for this request alone."""
    decode_seconds: float = 0.0
    prefetched: int = 0
    """Frames of a prefetch that are in the store, or on their way into it."""


class FrameSource(Protocol):
    """Serves frames without blocking the event loop."""

    async def serve(self, request: FrameRequest) -> FrameReply:
        """Serve a request.

        Raises:
            VideoError: The video or a frame is not available.
        """
        ...


class CountingSource:
    """One episode's view of a shared source; counts its frames. Earlier attempts of a validation are included."""

    def __init__(self, source: FrameSource) -> None:
        self._source = source
        self.requested = 0
        self.decoded = 0
        self.decode_seconds = 0.0

    async def serve(self, request: FrameRequest) -> FrameReply:
        reply = await self._source.serve(request)
        self.requested += len(reply.frames)
        self.decoded += reply.decoded
        self.decode_seconds += reply.decode_seconds
        return reply


class DrawnSource(ABC):
    """Base of sources whose frames are drawn instead of decoded."""

    keyframe_interval = 1

    @abstractmethod
    def facts(self, path: str) -> VideoInfo:
        """Facts about a video."""

    @abstractmethod
    def draw(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> list[Frame]:
        """Frames by number."""

    def indices_at(self, path: str, times: Sequence[float]) -> list[int]:
        """Numbers of the frames closest to some times (seconds)."""
        info = self.facts(path)
        return nearest_indices(np.arange(info.num_frames) / info.fps, times)

    async def serve(self, request: FrameRequest) -> FrameReply:
        info = self.facts(request.path)
        indices = self.indices_at(request.path, request.times) if len(request.times) else request.indices
        frames = self.draw(request.path, indices, request.size) if len(indices) else []
        keyframes = list(range(0, info.num_frames, self.keyframe_interval)) if request.keyframes else []
        return FrameReply(info, frames, keyframes)
