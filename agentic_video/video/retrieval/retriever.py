"""Finding frames by text: similarities of a video's frames and a prompt under a CLIP-like model.

Importing this touches neither the network nor a model library; making an encoder does.
"""

from __future__ import annotations

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
from agentic_video.video.retrieval.embedding_cache import EmbeddingCache, Row
from agentic_video.video.retrieval.encoder import Encoder
from agentic_video.video.source import FrameRequest, FrameSource

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")

_CHUNK_BYTES = 32 * 2**20
"""Most bytes of frames in one request to the frame source."""

MAX_COMPARED = 4096
"""Frames that are compared with each other at a time: their matrix has 64 MiB."""

_CHUNKS = 8
"""Requests to the frame source at a time, over all rollouts: bounds the frames that wait to be embedded."""


@dataclass(frozen=True)
class RetrievalStats:
    """What a retriever has done so far.

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
    """Refuse more frames than are compared at a time.

    Raises:
        ValueError: More than :data:`MAX_COMPARED`.
    """
    if len(indices) > MAX_COMPARED:
        raise ValueError(f"at most {MAX_COMPARED} frames can be compared with each other, got {len(indices)}")


def clean_prompt(prompt: str, max_chars: int) -> str:
    """What of a prompt is embedded.

    Args:
        prompt: Any text.
        max_chars: Characters of it that count.

    Returns:
        Its first characters, those that no tokenizer takes replaced by spaces.
    """
    return " ".join(_CONTROL.sub(" ", prompt[:max_chars]).split())


class FrameRetriever:
    """Compares frames with texts; a Retriever. Belongs to one event loop.

    Each frame of a video is embedded once, however many requests want it at the same time or later (within the bounds
    of its caches). Frames are asked for at the model's input size, a few at a time.

    Args:
        source: Where frames come from.
        encoder: What embeds them.
        config: Batches and caches.
    """

    def __init__(self, source: FrameSource, encoder: Encoder, config: RetrievalConfig) -> None:
        self._source, self._encoder, self._config = source, encoder, config
        self._cache = EmbeddingCache(config, encoder.identity)
        self._compute = ThreadPoolExecutor(1, "retrieval")
        self._disk = ThreadPoolExecutor(1, "retrieval-disk")
        wait = config.wait_ms / 1000
        self._images = Batcher(encoder.images, config.batch_size, wait, self._compute)
        self._texts = Batcher(encoder.texts, config.batch_size, wait, self._compute)
        self._known_texts: BoundedCache[str, Row] = BoundedCache(config.max_texts)
        self._pending_texts: dict[str, asyncio.Task[Row]] = {}
        self._pending: dict[tuple[VideoIdentity, int], asyncio.Future[Row]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_CHUNKS)
        self._asked = self._hits = self._disk_hits = 0

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        """Cosine similarity of each frame to a prompt.

        Args:
            path: Video file.
            indices: Frame indices in any order; duplicates are allowed.
            prompt: Any text; characters beyond the config's bound don't count.

        Returns:
            One similarity per index in the asked order, -1 to 1 but for rounding.

        Raises:
            VideoError: A frame can't be read.
        """
        if not len(indices):
            return []
        images, text = await self._embedded(path, indices, prompt)
        similarities: list[float] = (images @ text).tolist()
        return similarities

    async def acompare(
        self, path: str, indices: Sequence[int], prompt: str
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Cosine similarities of frames to a prompt, and to each other.

        Args:
            path: Video file.
            indices: Frame indices in any order; duplicates are allowed.
            prompt: Any text; characters beyond the config's bound don't count.

        Returns:
            Of shape (n,) and (n, n), in the asked order, read-only; -1 to 1 but for rounding.

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
        for made in (relevance, alike):
            made.setflags(write=False)  # as they are behind Ray, which shares their memory
        return relevance, alike

    async def _embedded(self, path: str, indices: Sequence[int], prompt: str) -> tuple[npt.NDArray[np.float32], Row]:
        """The embeddings of frames, of shape (n, features), and of a prompt."""
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
            bytes=self._cache.bytes,
        )

    async def aclose(self) -> None:
        """Wait for what is under way, to the last write, and end the threads."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._compute.shutdown()
        self._disk.shutdown()

    async def _text(self, text: str) -> Row:
        row = self._known_texts.get(text)
        if row is not None:
            return row
        task = self._pending_texts.get(text)
        if task is None:
            task = self._pending_texts[text] = asyncio.create_task(self._embed_text(text))
        # Who stops waiting must not stop it for the others.
        return await asyncio.shield(task)

    async def _embed_text(self, text: str) -> Row:
        try:
            [row] = await self._texts([text])
        finally:
            del self._pending_texts[text]
        self._known_texts[text] = row
        return row

    async def _rows(self, path: str, wanted: Sequence[int]) -> dict[int, Row]:
        """The embeddings of frames by index: remembered, waited for, or made."""
        video = await asyncio.to_thread(identify, path)
        rows: dict[int, Row] = {}
        made: set[int] = set()
        while missing := [index for index in dict.fromkeys(wanted) if index not in rows]:
            futures: dict[int, asyncio.Future[Row]] = {}
            own: list[int] = []
            for index in missing:
                row = self._cache.get(video, index)
                if row is not None:
                    rows[index] = row
                elif (video, index) in self._pending:
                    futures[index] = self._pending[video, index]
                else:
                    own.append(index)
                    futures[index] = self._pending[video, index] = asyncio.get_running_loop().create_future()
            if own:
                made.update(own)
                # A task of its own: a rollout that is cancelled must not take along what others wait for.
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
                # Else another request failed, perhaps for another frame's sake: this one tries for itself.
        self._hits += len(wanted) - len(made)
        return rows

    async def _make(self, video: VideoIdentity, indices: Sequence[int]) -> None:
        """Settle the pending embeddings of frames, from the disk cache or from the frames."""
        fresh: dict[int, Row] = {}
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
        self, video: VideoIdentity, chunk: Sequence[int], size: tuple[int, int], fresh: dict[int, Row]
    ) -> None:
        """Embed a few frames; whether they can be had is told to those who wait for them, not to the caller."""
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

    def _settle(self, video: VideoIdentity, index: int, row: Row) -> None:
        row.setflags(write=False)
        self._cache.put(video, index, row)
        self._pending.pop((video, index)).set_result(row)

    def _fail(self, video: VideoIdentity, indices: Iterable[int], error: BaseException) -> None:
        for index in indices:
            future = self._pending.pop((video, index), None)
            if future is not None and isinstance(error, Exception):
                future.set_exception(error)
                future.exception()  # who asked may be gone: nobody need hear of it
            elif future is not None:
                future.cancel()

    async def _on_disk_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._disk, function, *arguments)
