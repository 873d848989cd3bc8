"""Fitting pictures to the sizes that a model's processor keeps, whatever made them.

:class:`~agentic_video.tools.base.Video` requests such sizes from the store. Pictures of other sizes (that a tool made
or cropped, or that a system shows as a clip) are fitted here, before they are shown, recorded and trained on.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from agentic_video.families.base import ProcessorRules
from agentic_video.types.frame import Clip, Frame
from agentic_video.types.message import Message, Observation, Part
from agentic_video.video.sizes import crop, resize
from agentic_video.video.source import FrameRequest, FrameSource


class PictureFitter:
    """Fits pictures of an episode with the video ``path``; without ``rules`` a server's own processor does it."""

    def __init__(self, rules: ProcessorRules | None, source: FrameSource, path: str):
        self._rules, self._source, self._path = rules, source, path

    async def messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Fit messages' pictures; VideoError if a frame is not available at its new size."""
        return tuple([replace(message, parts=await self.parts(message.parts)) for message in messages])

    async def observation(self, shown: Observation) -> Observation:
        """Fit an observation's pictures."""
        parts = await self.parts(shown.parts)
        return shown if parts is shown.parts else replace(shown, parts=parts)

    async def parts(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Fit parts' pictures; returns the same parts if all of them fit."""
        if self._rules is None or all(isinstance(part, str) or self._size(part) is None for part in parts):
            return parts
        return tuple([part if isinstance(part, str) else await self._fitted(part) for part in parts])

    def _size(self, shown: Frame | Clip) -> tuple[int, int] | None:
        """(width, height) that a picture must get; None if it fits."""
        assert self._rules is not None
        size = self._rules.kept(shown.width, shown.height, len(shown.frames) if isinstance(shown, Clip) else 0)
        return None if size == (shown.width, shown.height) else size

    async def _fitted(self, shown: Frame | Clip) -> Frame | Clip:
        size = self._size(shown)
        if size is None:
            return shown
        if isinstance(shown, Clip):
            return Clip(tuple(await asyncio.gather(*(self._resized(frame, size) for frame in shown.frames))))
        return await self._resized(shown, size)

    async def _resized(self, frame: Frame, size: tuple[int, int]) -> Frame:
        if frame.origin is not None:
            request = FrameRequest(frame.origin.video, [frame.origin.index], size=size)
            (found,) = (await self._source.serve(request)).frames
            return found if found.time == frame.time else replace(found, time=frame.time)
        if frame.crop is not None:
            # In one step, as SFT crops it again.
            whole = frame.crop.frame_width, frame.crop.frame_height
            (found,) = (await self._source.serve(FrameRequest(self._path, [frame.index], size=whole))).frames
            return await asyncio.to_thread(crop, found, frame.crop.box, size)
        return replace(frame, image=await asyncio.to_thread(resize, frame.image, *size))
