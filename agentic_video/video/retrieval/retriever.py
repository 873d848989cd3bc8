"""Frame retrieval by text: similarities of a video's frames and a prompt under a CLIP-like model."""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agentic_video.video.cache import BoundedCache, VideoIdentity, identify
from agentic_video.video.errors import VideoError
from agentic_video.video.retrieval.batcher import Batcher
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.retrieval.embedding_cache import Embedding, EmbeddingCache
from agentic_video.video.retrieval.encoder import Encoder
from agentic_video.video.source import FrameRequest, FrameSource

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")

_CHUNK_BYTES = 32 * 2**20
"""Most bytes of frames in one request to the frame source."""

MAX_COMPARED = 4096
"""Most frames compared with each other at a time: their matrix has 64 MiB."""

_CHUNKS = 8
"""Requests to the frame source at a time, over all rollouts: bounds the frames that wait."""


@dataclass(frozen=True)
class RetrievalStats:
    """Counts of a retriever so far.

    Attributes:
        asked: Frames asked for, duplicates included.
        embedded: Frames embedded.
        hits: Frames found in memory or under way for another request.
        disk_hits: Frames found in the disk cache.
        disk_errors: Files of the disk cache that could not be read or written.
        texts: Texts embedded.
        batches: Forward passes, of frames or texts.
        seconds: Seconds spent in them.
        bytes: Bytes of frame embeddings held now.
    """

    asked: int
    embedded: int
    hits: int
    disk_hits: int
    disk_errors: int
    texts: int
    batches: int
    seconds: float
    bytes: int


def check_compared(indices: Sequence[int]) -> None:
    """Raise ValueError for more frames than :data:`MAX_COMPARED`."""
    if len(indices) > MAX_COMPARED:
        raise ValueError(f"at most {MAX_COMPARED} frames can be compared with each other, got {len(indices)}")


def clean_prompt(prompt: str, max_chars: int) -> str:
    """Cut a prompt to be embedded, and replace characters that no tokenizer takes by spaces."""
    return " ".join(_CONTROL.sub(" ", prompt[:max_chars]).split())


class FrameRetriever:
    """Compares frames with texts; a Retriever. Belongs to one event loop.

    Each frame is embedded once, however many requests want it at the same time or later (within the caches' bounds).
    Frames are requested at the model's input size, a few at a time.
    """

    def __init__(self, source: FrameSource, encoder: Encoder, config: RetrievalConfig) -> None:
        self._source, self._encoder, self._config = source, encoder, config
        self._cache = EmbeddingCache(config, encoder.identity)
        self._compute = ThreadPoolExecutor(1, "retrieval")
        self._disk = ThreadPoolExecutor(1, "retrieval-disk")
        wait = config.wait_ms / 1000
        self._images = Batcher(encoder.images, config.batch_size, wait, self._compute)
        self._texts = Batcher(encoder.texts, config.batch_size, wait, self._compute)
        self._known_texts: BoundedCache[str, Embedding] = BoundedCache(config.max_texts)
        self._pending_texts: dict[str, asyncio.Task[Embedding]] = {}
        self._pending: dict[tuple[VideoIdentity, int], asyncio.Future[Embedding]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_CHUNKS)
        self._asked = self._hits = self._disk_hits = 0

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        """Cosine similarity of each frame to a prompt, in the requested order; duplicates are allowed."""
        if not len(indices):
            return []
        images, text = await self._embedded(path, indices, prompt)
        similarities: list[float] = (images @ text).tolist()
        return similarities

    async def acompare(
        self, path: str, indices: Sequence[int], prompt: str
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Cosine similarities of frames to a prompt (n,) and to each other (n, n), in the requested order, read-only.

        Raises:
            ValueError: More than :data:`MAX_COMPARED` frames.
            VideoError: A frame can't be read.
        """
        check_compared(indices)
        relevance, alike = np.zeros(0, np.float32), np.zeros((0, 0), np.float32)
        if len(indices):
            images, text = await self._embedded(path, indices, prompt)
            # Not on the event loop: for thousands of frames it takes a while.
            relevance, alike = await asyncio.to_thread(lambda: (images @ text, images @ images.T))
        for array in (relevance, alike):
            array.setflags(write=False)  # as behind Ray, which shares their memory
        return relevance, alike

    async def _embedded(
        self, path: str, indices: Sequence[int], prompt: str
    ) -> tuple[npt.NDArray[np.float32], Embedding]:
        """Embeddings of frames, of shape (n, features), and of a prompt."""
        wanted = [int(index) for index in indices]
        self._asked += len(wanted)
        text = await self._text(clean_prompt(prompt, self._config.max_prompt_chars))
        rows = await self._rows(path, wanted)
        return np.stack([rows[index] for index in wanted]), text

    def stats(self) -> RetrievalStats:
        """Counts so far."""
        return RetrievalStats(
            asked=self._asked,
            embedded=self._images.items,
            hits=self._hits,
            disk_hits=self._disk_hits,
            disk_errors=self._cache.disk_errors,
            texts=self._texts.items,
            batches=self._images.batches + self._texts.batches,
            seconds=self._images.seconds + self._texts.seconds,
            bytes=int(self._cache.memory.currsize),
        )

    async def aclose(self) -> None:
        """Wait for running work, to the last write, and end the threads."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._compute.shutdown()
        self._disk.shutdown()

    async def _text(self, text: str) -> Embedding:
        row = self._known_texts.get(text)
        if row is not None:
            return row
        task = self._pending_texts.get(text)
        if task is None:
            task = self._pending_texts[text] = asyncio.create_task(self._embed_text(text))
        # A waiter that is cancelled must not cancel it for the others.
        return await asyncio.shield(task)

    async def _embed_text(self, text: str) -> Embedding:
        try:
            [row] = await self._texts([text])
        finally:
            del self._pending_texts[text]
        self._known_texts[text] = row
        return row

    async def _rows(self, path: str, wanted: Sequence[int]) -> dict[int, Embedding]:
        """Embeddings of frames by index: remembered, waited for, or made."""
        video = await asyncio.to_thread(identify, path)
        rows: dict[int, Embedding] = {}
        made: set[int] = set()
        while missing := [index for index in dict.fromkeys(wanted) if index not in rows]:
            futures: dict[int, asyncio.Future[Embedding]] = {}
            own: list[int] = []
            for index in missing:
                row = self._cache.memory.get((video, index))
                if row is not None:
                    rows[index] = row
                elif (video, index) in self._pending:
                    futures[index] = self._pending[video, index]
                else:
                    own.append(index)
                    futures[index] = self._pending[video, index] = asyncio.get_running_loop().create_future()
            if own:
                made.update(own)
                # A separate task: a cancelled rollout must not cancel what others wait for.
                task = asyncio.create_task(self._make(video, own))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            if futures:
                await asyncio.wait(futures.values())
            for index, future in futures.items():
                error = future.exception()
                if error is None:
                    rows[index] = future.result()
                elif index in made or (isinstance(error, VideoError) and error.reason == "timeout"):
                    raise error.bare() if isinstance(error, VideoError) else error
                # Otherwise another request failed, perhaps for another frame: this one tries again.
        self._hits += len(wanted) - len(made)
        return rows

    async def _make(self, video: VideoIdentity, indices: Sequence[int]) -> None:
        """Settle pending embeddings, from the disk cache or from the frames."""
        fresh: dict[int, Embedding] = {}
        try:
            stored = await self._on_disk_thread(self._cache.load, video, indices) if self._cache.on_disk else {}
            self._disk_hits += len(stored)
            for index, row in stored.items():
                self._settle(video, index, row)
            missing = [index for index in indices if index not in stored]
            if missing:
                info = (await self._source.serve(FrameRequest(video.path))).info
                size = self._encoder.frame_size(info.width, info.height)
                step = max(1, min(self._config.batch_size, _CHUNK_BYTES // (size[0] * size[1] * 3)))
                chunks = [missing[start : start + step] for start in range(0, len(missing), step)]
                await asyncio.gather(*(self._embed(video, chunk, size, fresh) for chunk in chunks))
        except BaseException as error:
            self._fail(video, indices, error)
            if not isinstance(error, Exception):
                raise
        if fresh and self._cache.on_disk:
            await self._on_disk_thread(self._cache.save, video, fresh)

    async def _embed(
        self, video: VideoIdentity, chunk: Sequence[int], size: tuple[int, int], fresh: dict[int, Embedding]
    ) -> None:
        """Embed a few frames; errors go to those who wait for them, not to the caller."""
        try:
            async with self._slots:
                frames = (await self._source.serve(FrameRequest(video.path, chunk, size=size))).frames
                rows = await self._images([frame.image for frame in frames])
        except Exception as error:
            self._fail(video, chunk, error)
            return
        for index, row in zip(chunk, rows, strict=True):
            fresh[index] = row
            self._settle(video, index, row)

    def _settle(self, video: VideoIdentity, index: int, row: Embedding) -> None:
        row.setflags(write=False)
        self._cache.memory[video, index] = row
        self._pending.pop((video, index)).set_result(row)

    def _fail(self, video: VideoIdentity, indices: Iterable[int], error: BaseException) -> None:
        for index in indices:
            future = self._pending.pop((video, index), None)
            if future is not None and isinstance(error, Exception):
                future.set_exception(error)
                future.exception()  # mark it as retrieved: its waiters may be gone
            elif future is not None:
                future.cancel()

    async def _on_disk_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._disk, function, *arguments)
