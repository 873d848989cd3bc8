"""The base of all video tools: videos, errors and retrieval."""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from agentic_video.families.base import ProcessorError, ProcessorRules
from agentic_video.types.frame import Frame
from agentic_video.video.errors import VideoError
from agentic_video.video.index import VideoInfo
from agentic_video.video.source import FrameRequest, FrameSource


class ToolError(Exception):
    """An illegal request by the agent. The message is what the agent is told."""


class Retriever(Protocol):
    """Compares frames with a text."""

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        """Similarity of each frame of a video to the prompt, higher means closer."""

    async def acompare(
        self, path: str, indices: Sequence[int], prompt: str
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Compute :meth:`Video.similarities` for a video by its path."""


class Video:
    """One video as tools and systems see it: its facts, and frames on demand from the shared store.

    Args:
        retriever: Finds frames by text, where a system needs it.
        rules: Sizes that the model's processor keeps: frames come at the nearest of them. None keeps sizes as asked.
        clips: Whether several frames asked for at a time are shown as a clip.
    """

    def __init__(
        self,
        path: str,
        info: VideoInfo,
        source: FrameSource,
        retriever: Retriever | None = None,
        rules: ProcessorRules | None = None,
        *,
        clips: bool = False,
    ):
        self.path = path
        self.info = info
        self._source = source
        self._retriever = retriever
        self._rules, self._clips = rules, clips

    @classmethod
    async def open(
        cls,
        path: str,
        source: FrameSource,
        retriever: Retriever | None = None,
        rules: ProcessorRules | None = None,
        *,
        clips: bool = False,
    ) -> "Video":
        """Probe a video; the arguments are those of the class."""
        return cls(path, (await source.serve(FrameRequest(path))).info, source, retriever, rules, clips=clips)

    @property
    def can_search(self) -> bool:
        """Return True if frames can be found by text."""
        return self._retriever is not None

    async def frame_positions(self, times: Sequence[float], size: tuple[int, int]) -> list[float]:
        """Positions of times among the frame numbers: a frame's own time is its number, others lie between two numbers.

        Args:
            times: Seconds. Where the rate varies, the frame closest to each is looked at: nothing else says when it is
                shown.
            size: (width, height) in pixels of frames that are looked at.
        """
        if not self.info.variable_frame_rate:
            return [self.info.place(time) for time in times]
        frames = await self.frames_at(times, size)
        return [
            frame.index if abs(time - frame.time) < 1e-6 else frame.index + math.copysign(0.5, time - frame.time)
            for time, frame in zip(times, frames, strict=True)
        ]

    async def best_matches(self, prompt: str, indices: Sequence[int], count: int) -> list[int]:
        """The ``count`` frame numbers among ``indices`` whose frames match the prompt best, in order of time."""
        scores = await self._finder().asimilarities(self.path, indices, prompt)
        ranked = sorted(zip(scores, indices, strict=True), key=lambda pair: (-pair[0], pair[1]))
        return sorted(index for _, index in ranked[:count])

    async def similarities(
        self, text: str, indices: Sequence[int]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Similarities of frames to a text and to each other, for selections by both (DPP, MMR).

        Args:
            indices: Frame numbers in any order; duplicates are allowed.

        Returns:
            Cosine similarities in the order of ``indices``, not to be written to: of each frame and the text, of shape
            (n,), and of each two frames, of shape (n, n).
        """
        return await self._finder().acompare(self.path, indices, text)

    def _finder(self) -> Retriever:
        if self._retriever is None:
            raise ValueError("finding frames by text needs a retrieval model: set agentic_video.retrieval.model")
        return self._retriever

    async def frames_at(self, times: Sequence[float], size: tuple[int, int] | None = None) -> list[Frame]:
        """The frames closest to the given times.

        Args:
            times: Seconds.
            size: (width, height) in pixels to resize to; None keeps the original size. The model's processor may
                want another one nearby.

        Returns:
            One frame for each time, in the same order; ``Frame.time`` is the real presentation time.
        """
        request = FrameRequest(self.path, times=times, size=self._kept(size, len(times)))
        return (await self._source.serve(request)).frames

    async def keyframes(self) -> list[int]:
        """The numbers of the frames that are decoded from their own packet alone, ascending."""
        return (await self._source.serve(FrameRequest(self.path, keyframes=True))).keyframes

    async def frames(self, indices: Sequence[int], size: tuple[int, int] | None = None) -> list[Frame]:
        """The frames with the given numbers in presentation order (see :meth:`frames_at`)."""
        request = FrameRequest(self.path, indices, size=self._kept(size, len(indices)))
        return (await self._source.serve(request)).frames

    def _kept(self, size: tuple[int, int] | None, count: int) -> tuple[int, int] | None:
        """The size nearest to one that the model's processor keeps."""
        if self._rules is None:
            return size
        width, height = size or (self.info.width, self.info.height)
        try:
            return self._rules.kept(width, height, count if self._clips and count > 1 else 0)
        except (ProcessorError, ValueError) as error:
            raise VideoError(self.path, "unsupported", str(error)) from error
