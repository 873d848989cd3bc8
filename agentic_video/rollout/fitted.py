"""Pictures at the sizes that a model's processor keeps, however a system or a tool made them.

:class:`~agentic_video.tools.base.Video` asks the store for such sizes. What comes in another size all the same (a
picture that a tool made or cut out, frames that a system shows as a clip against its own key) is fitted here, before it
is shown, recorded and trained on.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from agentic_video.types.frame import Clip, Frame
from agentic_video.types.message import Message, Observation, Part
from agentic_video.video.processor_rules import ProcessorRules
from agentic_video.video.sizes import crop, resize
from agentic_video.video.source import FrameRequest, FrameSource


class PictureFitter:
    """Fits what an episode shows to a model's processor.

    Args:
        rules: The sizes that the processor keeps; None where a server has a processor of its own.
        source: Where frames come from.
        path: The episode's video.
    """

    def __init__(self, rules: ProcessorRules | None, source: FrameSource, path: str):
        self._rules, self._source, self._path = rules, source, path

    async def messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The same messages with fitted pictures.

        Raises:
            VideoError: A frame can't be had again at its new size.
        """
        return tuple([replace(message, parts=await self.parts(message.parts)) for message in messages])

    async def observation(self, shown: Observation) -> Observation:
        """The same observation with fitted pictures; raises as :meth:`messages`."""
        parts = await self.parts(shown.parts)
        return shown if parts is shown.parts else replace(shown, parts=parts)

    async def parts(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """The same parts with fitted pictures, themselves where all of them fit; raises as :meth:`messages`."""
        if self._rules is None or all(isinstance(part, str) or self._size(part) is None for part in parts):
            return parts
        return tuple([part if isinstance(part, str) else await self._fitted(part) for part in parts])

    def _size(self, shown: Frame | Clip) -> tuple[int, int] | None:
        """(width, height) that a picture is to have; None where it has it."""
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
            # As SFT cuts it out again: in one step.
            whole = frame.crop.frame_width, frame.crop.frame_height
            (found,) = (await self._source.serve(FrameRequest(self._path, [frame.index], size=whole))).frames
            return await asyncio.to_thread(crop, found, frame.crop.box, size)
        return replace(frame, image=await asyncio.to_thread(resize, frame.image, *size))
