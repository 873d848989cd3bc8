"""Where frames come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentic_video.types.frame import Frame
from agentic_video.video.index import VideoInfo


class FrameSource(Protocol):
    """Where frames come from: a store in this process, or the one of this node."""

    async def aprobe(self, path: str) -> VideoInfo:
        """Facts about a video; raises VideoError."""
        ...

    async def aframes(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> list[Frame]:
        """Frames in the asked order at `size` (width, height) in pixels, or as stored; raises VideoError."""
        ...

    async def aframes_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> list[Frame]:
        """The frames closest to the given times in seconds, in the asked order; raises VideoError."""
        ...
