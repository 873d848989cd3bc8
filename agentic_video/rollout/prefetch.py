"""An episode's first frames before the episode: what its system would show first is decoded and nothing else done."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.shown import shows_clips
from agentic_video.tools.base import Retriever, Video
from agentic_video.types.frame import Frame
from agentic_video.types.row import RowError, VideoQA
from agentic_video.video.errors import VideoError
from agentic_video.video.index import VideoInfo
from agentic_video.video.processor_rules import ProcessorRules
from agentic_video.video.source import ServingSource


async def prefetch_opening(
    system: System,
    qa: VideoQA,
    source: ServingSource,
    retriever: Retriever | None = None,
    rules: ProcessorRules | None = None,
) -> int:
    """Have the frames of an episode's opening at hand in the store, while nothing else needs its decoders.

    Args:
        system: Its opening is played, and dropped; it sees black frames.
        source: The store of the node on which the episode will be played.
        retriever: What finds frames by text, for systems that open with such frames.
        rules: The sizes that the model's processor keeps.

    Returns:
        How many of the frames are at hand then; 0 for a row or a video that can't be played, which the episode will
        say itself.
    """
    ahead = _AheadSource(source)
    with contextlib.suppress(VideoError, RowError):
        video = await Video.open(qa.video, ahead, retriever, rules, clips=shows_clips(system))
        await system.opening(EpisodeView(qa, video))
    return ahead.ready


class _AheadSource:
    """A source whose frames are decoded into the store, and come back black and without their times."""

    def __init__(self, source: ServingSource) -> None:
        self._source = source
        self.ready = 0

    async def aprobe(self, path: str) -> VideoInfo:
        return await self._source.aprobe(path)

    async def akeyframes(self, path: str) -> list[int]:
        return await self._source.akeyframes(path)

    async def aframes(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> list[Frame]:
        self.ready += await self._source.aprefetch(path, indices, size)
        return [Frame(index, 0.0, await self._black(path, size)) for index in indices]

    async def aframes_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> list[Frame]:
        self.ready += await self._source.aprefetch_at(path, times, size)
        return [Frame(0, time, await self._black(path, size)) for time in times]

    async def _black(self, path: str, size: tuple[int, int] | None) -> np.ndarray:
        if size is None:
            info = await self._source.aprobe(path)
            size = info.width, info.height
        return np.broadcast_to(np.uint8(0), (size[1], size[0], 3))
