"""Work on what a producer gives, beside the producer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


def worked_beside(
    executor: Executor,
    items: Iterator[tuple[K, V]],
    work: Callable[[V], T],
    most: int,
    has_room: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[K, T]]:
    """Do something with each item on another thread while the next ones are produced on this one.

    Args:
        executor: Its threads do the work.
        items: Keys and what to work on.
        work: What to do with each.
        most: Items under way at a time.
        has_room: Whether a processor is free for another thread; while none is, this one does the work itself.

    Yields:
        Keys and results, in the order of the items. When producing fails, what was produced before comes first.

    Raises:
        Exception: What ``items`` or ``work`` raised.
    """
    under_way: deque[tuple[K, Future[T]]] = deque()
    error: BaseException | None = None
    while True:
        try:
            key, value = next(items)
        except StopIteration:
            break
        except BaseException as raised:
            error = raised
            break
        if has_room():
            under_way.append((key, executor.submit(work, value)))
        else:
            while under_way:
                earlier, future = under_way.popleft()
                yield earlier, future.result()
            yield key, work(value)
        del value
        while under_way and (len(under_way) >= most or under_way[0][1].done()):
            key, future = under_way.popleft()
            yield key, future.result()
    for key, future in under_way:
        yield key, future.result()
    if error is not None:
        raise error
