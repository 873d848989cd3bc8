"""Time limits of custom code.

A coroutine is cancelled at its limit. A plain function runs on a thread of its own; Python can't end a thread, so one
that is late is left behind, counted and named. After ``MAX_STUCK`` of them in one process no other is started until one
comes back.
"""

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

MAX_RUNNING = 16
"""Most plain functions at a time for one event loop; others wait, and their time doesn't count."""
MAX_STUCK = 8
"""Most calls that never came back; no other is started."""


class TimeLimitError(Exception):
    """A function took too long, or too many calls before it never came back; the message names it."""


class _Limit:
    """Remaining time of one call; it stands still while something else is waited for."""

    def __init__(self, timeout: asyncio.Timeout, seconds: float):
        self._timeout = timeout
        self._left = seconds
        self._waits = 0

    def pause(self) -> None:
        self._waits += 1
        if self._waits == 1 and (when := self._timeout.when()) is not None and not self._timeout.expired():
            self._left = when - asyncio.get_running_loop().time()
            self._timeout.reschedule(None)

    def resume(self) -> None:
        self._waits -= 1
        if self._waits == 0 and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)


_limit: contextvars.ContextVar[_Limit | None] = contextvars.ContextVar("limit", default=None)


@contextmanager
def uncounted() -> Iterator[None]:
    """Context whose waits have limits of their own, and doesn't count as time of the function that waits."""
    limit = _limit.get()
    if limit is None:
        yield
        return
    limit.pause()
    try:
        yield
    finally:
        limit.resume()


async def call_limited(function: Callable[..., Any], *args: Any, seconds: float, whose: str, **kwargs: Any) -> Any:
    """Return the result of a function, or of the coroutine that it returns, or raise a TimeLimitError.

    Args:
        function: A plain one runs on a thread.
        seconds: Its time without that within :func:`uncounted`; 0 sets no limit.
        whose: Function, question and key, for messages.
    """
    started = time.monotonic()
    plain = not inspect.iscoroutinefunction(function)
    if plain:
        found = await _on_thread(partial(function, *args, **kwargs), seconds, whose)
    else:
        found = function(*args, **kwargs)
    if not inspect.isawaitable(found):
        return found
    left = max(0.0, seconds - (time.monotonic() - started)) if plain and seconds else seconds
    try:
        async with asyncio.timeout(left if seconds else None) as timeout:
            token = _limit.set(_Limit(timeout, left)) if seconds else None
            try:
                return await found
            finally:
                if token is not None:
                    _limit.reset(token)
    except TimeoutError:
        if not timeout.expired():
            raise  # its own
    raise _late(whose, seconds)


def _late(whose: str, seconds: float) -> TimeLimitError:
    return TimeLimitError(f"{whose} took more than {seconds:g} s")


_stuck: dict[int, str] = {}
"""Late calls that haven't come back, by number."""
_numbers = count()
_lock = threading.Lock()
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def _on_thread(work: Callable[[], Any], seconds: float, whose: str) -> Any:
    loop = asyncio.get_running_loop()
    async with _slots.setdefault(loop, asyncio.Semaphore(MAX_RUNNING)):
        with _lock:
            stuck = list(_stuck.values())
        if len(stuck) >= MAX_STUCK:
            raise TimeLimitError(f"{whose} isn't called: {len(stuck)} calls never came back, the last one {stuck[-1]}")
        done: asyncio.Future[Any] = loop.create_future()
        number = next(_numbers)
        came_back = False

        def give(returned: Any, error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(returned)
            else:
                done.set_exception(error)

        def run() -> None:
            nonlocal came_back
            returned: Any = None
            error: BaseException | None = None
            try:
                returned = context.run(work)
            except StopIteration as stopped:  # which no future takes
                error = RuntimeError(f"{type(stopped).__name__} was raised")
            except BaseException as raised:  # whatever it raises is its caller's
                error = raised
            with _lock:
                came_back = True
                _stuck.pop(number, None)
            with suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(give, returned, error)

        context = contextvars.copy_context()
        # A daemon: a process that ends doesn't wait for what never comes back
        threading.Thread(target=run, name=f"limited: {whose[:60]}", daemon=True).start()
        try:
            async with asyncio.timeout(seconds or None):
                return await asyncio.shield(done)
        except TimeoutError:
            if done.done():
                return done.result()  # it raised one itself
        finally:
            if not done.done():
                with _lock:
                    if not came_back:
                        _stuck[number] = whose
                done.add_done_callback(_forget)
    raise _late(whose, seconds)


def _forget(done: "asyncio.Future[Any]") -> None:
    if not done.cancelled():
        done.exception()  # taken, so that no one warns of it
