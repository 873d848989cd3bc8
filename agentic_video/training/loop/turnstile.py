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
    """Wait for one's turn: of all coroutines that wait here, an event loop lets one go on each time it goes round.

    An event loop runs all that is ready before it looks at anything else. When 64 episodes get their answers at once,
    and each needs five milliseconds for what comes next, everything else waits for a third of a second. Behind this,
    it waits for five milliseconds.
    """
    async with _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        await asyncio.sleep(0)


async def run_in_thread(work: Callable[[], T]) -> T:
    """What a function returns, which runs while the event loop goes on.

    It runs on one thread for all episodes: of several, each would make the event loop wait for five milliseconds (the
    interpreter's switch interval) before it can go on.
    """
    return await asyncio.get_running_loop().run_in_executor(_thread(), work)


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="beside-the-loop")
