"""Decoding an episode's first frames before the episode."""

import contextlib
from dataclasses import replace

import numpy as np

from agentic_video.families.base import ProcessorRules
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.shown import shows_clips
from agentic_video.tools.base import Retriever, Video
from agentic_video.types.frame import Frame
from agentic_video.types.row import RowError, VideoQA
from agentic_video.video.errors import VideoError
from agentic_video.video.source import FrameReply, FrameRequest, FrameSource


async def prefetch_opening(
    system: System,
    qa: VideoQA,
    source: FrameSource,
    retriever: Retriever | None = None,
    rules: ProcessorRules | None = None,
) -> int:
    """Decode the frames of an episode's opening into the store while its decoders are idle.

    The opening is made of black frames and dropped. A row or a video that can't be played is left to the episode to
    report. Returns the number of frames that are in the store then.
    """
    ahead = _PrefetchingSource(source)
    with contextlib.suppress(VideoError, RowError, ValueError):
        video = await Video.open(qa.video, ahead, retriever, rules, clips=shows_clips(system))
        await system.opening(EpisodeView(qa, video))
    return ahead.ready


class _PrefetchingSource:
    """Decodes frames into the store, and returns black ones with wrong times."""

    def __init__(self, source: FrameSource) -> None:
        self._source = source
        self.ready = 0

    async def serve(self, request: FrameRequest) -> FrameReply:
        if not len(request.indices) and not len(request.times):
            return await self._source.serve(request)
        reply = await self._source.serve(replace(request, prefetch=True))
        self.ready += reply.prefetched
        width, height = request.size or (reply.info.width, reply.info.height)
        black = np.broadcast_to(np.uint8(0), (height, width, 3))
        frames = [Frame(int(index), 0.0, black) for index in request.indices]
        return replace(reply, frames=frames or [Frame(0, time, black) for time in request.times])
