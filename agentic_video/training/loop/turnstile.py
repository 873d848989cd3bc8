"""Fairness on an event loop that many episodes share."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def yield_fairly() -> None:
    """Yield to the event loop, which resumes one of the coroutines that wait here each time it goes round.

    When 64 episodes get their answers at once, everything else would wait until all of them have done what comes next.
    """
    async with _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        await asyncio.sleep(0)


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run a function on the single thread that all episodes share.

    Each further thread would make the event loop wait for five milliseconds (the interpreter's switch interval).
    """
    return await asyncio.get_running_loop().run_in_executor(_thread(), work)


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="agent-loop")
