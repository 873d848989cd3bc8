"""Concurrent requests for embeddings, gathered into batches."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from agentic_video.video.retrieval.embedding_cache import Embedding

T = TypeVar("T")


class Batcher(Generic[T]):
    """Gathers the items of concurrent requests into batches, embedded in order on a thread, for one event loop.

    Args:
        encode: Embeds a batch, one row per item, on the executor.
        size: Most items in a batch.
        wait: Seconds that an incomplete batch waits for other requests.
        executor: One thread; several batchers may share it.

    Attributes:
        items: Items embedded so far.
        batches: Calls of ``encode`` that succeeded.
        seconds: Seconds spent in ``encode``.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[T]], npt.NDArray[np.float32]],
        size: int,
        wait: float,
        executor: ThreadPoolExecutor,
    ) -> None:
        self._encode, self._size, self._wait, self._executor = encode, size, wait, executor
        self._queue: deque[tuple[T, asyncio.Future[Embedding]]] = deque()
        self._filled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.items = self.batches = 0
        self.seconds = 0.0

    async def __call__(self, items: Iterable[T]) -> list[Embedding]:
        """Embed items, in their order; raises errors of ``encode``."""
        loop = asyncio.get_running_loop()
        entries = [(item, loop.create_future()) for item in items]
        self._queue.extend(entries)
        if len(self._queue) >= self._size:
            self._filled.set()
        if self._task is None:
            self._task = loop.create_task(self._run())
        return await asyncio.gather(*(future for _, future in entries))

    async def _run(self) -> None:
        try:
            while self._queue:
                if len(self._queue) < self._size:
                    self._filled.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._filled.wait(), self._wait)
                batch = [self._queue.popleft() for _ in range(min(self._size, len(self._queue)))]
                batch = [(item, future) for item, future in batch if not future.done()]
                if batch:
                    await self._embed(batch)
        finally:
            self._task = None
            while self._queue:  # only when cancelled
                self._queue.popleft()[1].cancel()

    async def _embed(self, batch: list[tuple[T, asyncio.Future[Embedding]]]) -> None:
        items = [item for item, _ in batch]
        try:
            rows = await asyncio.get_running_loop().run_in_executor(self._executor, self._timed, items)
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        self.items += len(batch)
        self.batches += 1
        for (_, future), row in zip(batch, rows, strict=True):
            if not future.done():
                # A copy, because a view would keep the whole batch alive.
                future.set_result(row.copy())

    def _timed(self, items: Sequence[T]) -> npt.NDArray[np.float32]:
        started = time.perf_counter()
        try:
            rows = self._encode(items)
        finally:
            self.seconds += time.perf_counter() - started
        if len(rows) != len(items):
            raise RuntimeError(f"the retrieval model gives {len(rows)} embeddings for {len(items)} items")
        return rows
