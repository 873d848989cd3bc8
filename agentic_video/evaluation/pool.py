"""A bounded pool of coroutines."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def run_pool(items: Iterable[T], work: Callable[[T], Awaitable[None]], concurrency: int) -> None:
    """Await ``work`` of each item, at most ``concurrency`` at a time; the first error cancels the others."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    workers = [asyncio.ensure_future(worker()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:  # all have ended before the caller closes what they use
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
