"""What every video tool has in common."""

from collections.abc import Sequence

from agentic_video.video.frames import Frame
from agentic_video.video.reader import VideoInfo
from agentic_video.video.store import FrameSource


class ToolError(Exception):
    """An illegal request by the agent. The message is what the agent is told."""


class Video:
    """One video as tools and systems see it: its facts, and frames on demand from the shared store."""

    def __init__(self, path: str, info: VideoInfo, source: FrameSource):
        self.path = path
        self.info = info
        self._source = source

    @classmethod
    async def open(cls, path: str, source: FrameSource) -> "Video":
        """Probe a video.

        Raises:
            VideoError: The file is missing or can't be decoded.
        """
        return cls(path, await source.aprobe(path), source)

    async def frames_at(self, times: Sequence[float], size: tuple[int, int] | None = None) -> list[Frame]:
        """The frames closest to the given times.

        Args:
            times: Seconds.
            size: (width, height) in pixels to resize to; None keeps the original size.

        Returns:
            One frame for each time, in the same order; ``Frame.time`` is the real presentation time.
        """
        return await self._source.aframes_at(self.path, times, size)

    async def frames(self, indices: Sequence[int], size: tuple[int, int] | None = None) -> list[Frame]:
        """The frames with the given numbers in presentation order (see :meth:`frames_at`)."""
        return await self._source.aframes(self.path, indices, size)
