"""A source of frames that counts what one episode asks of it."""

from collections.abc import Sequence

from agentic_video.types.frame import Frame
from agentic_video.video.index import VideoInfo
from agentic_video.video.source import Served, ServingSource


class CountedSource:
    """One episode's view of a store that all episodes share; a FrameSource.

    Args:
        source: The store.

    Attributes:
        requested: Frames that were asked for, duplicates included.
        decoded: Those that had to be decoded for it.
        decode_seconds: Seconds that decoding them took.
    """

    def __init__(self, source: ServingSource) -> None:
        self._source = source
        self.requested = 0
        self.decoded = 0
        self.decode_seconds = 0.0

    async def aprobe(self, path: str) -> VideoInfo:
        """See :meth:`FrameSource.aprobe`."""
        return await self._source.aprobe(path)

    async def akeyframes(self, path: str) -> list[int]:
        """See :meth:`FrameSource.akeyframes`."""
        return await self._source.akeyframes(path)

    async def aframes(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> list[Frame]:
        """See :meth:`FrameSource.aframes`."""
        return self._count(await self._source.aserve(path, indices, size))

    async def aframes_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> list[Frame]:
        """See :meth:`FrameSource.aframes_at`."""
        return self._count(await self._source.aserve_at(path, times, size))

    def _count(self, served: Served) -> list[Frame]:
        self.requested += len(served.frames)
        self.decoded += served.decoded
        self.decode_seconds += served.decode_seconds
        return served.frames
