"""A retriever whose similarities are known: frames and texts are directions, by their degrees."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from agentic_video.video.errors import VideoError
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.retrieval.retriever import FrameRetriever
from agentic_video.video.source import FrameReply, FrameRequest
from tests.conftest import MemorySource

T = TypeVar("T")

CONFIG = RetrievalConfig(batch_size=8, wait_ms=5.0)


class DegreeEncoder:
    """Embeds a grey picture as the direction of so many degrees, and a text by the number that it is."""

    def __init__(self, identity: str = "degrees") -> None:
        self.identity = identity
        self.batches: list[int] = []
        self.text_batches: list[int] = []
        self.shapes: set[tuple[int, ...]] = set()
        self.fail = False

    def frame_size(self, width: int, height: int) -> tuple[int, int]:
        return width // 2, height // 2

    def images(self, images: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        if self.fail:
            raise RuntimeError("out of memory")
        self.batches.append(len(images))
        self.shapes |= {image.shape for image in images}
        return self._directions([float(image[0, 0, 0]) for image in images])

    def texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.text_batches.append(len(texts))
        return self._directions([float(text) for text in texts])

    @staticmethod
    def _directions(degrees: Sequence[float]) -> npt.NDArray[np.float32]:
        radians = np.radians(degrees)
        return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


class PickySource(MemorySource):
    def __init__(self, damaged: Sequence[int] = (), reason: Any = "corrupt", seconds: float = 0.0) -> None:
        super().__init__(size=(64, 48))
        self.damaged, self.reason, self.seconds = frozenset(damaged), reason, seconds
        self.requests: list[list[int]] = []

    async def serve(self, request: FrameRequest) -> FrameReply:
        if len(request.indices):
            self.requests.append(list(request.indices))
            await asyncio.sleep(self.seconds)
        if self.damaged.intersection(request.indices):
            raise VideoError(request.path, self.reason, "made to fail")
        return await super().serve(request)


def run(
    use: Callable[[FrameRetriever], Coroutine[Any, Any, T]],
    config: RetrievalConfig = CONFIG,
    source: MemorySource | None = None,
    encoder: DegreeEncoder | None = None,
) -> tuple[T, FrameRetriever]:
    async def main() -> tuple[T, FrameRetriever]:
        retriever = FrameRetriever(source or PickySource(), encoder or DegreeEncoder(), config)
        try:
            return await use(retriever), retriever
        finally:
            await retriever.aclose()

    return asyncio.run(main())
