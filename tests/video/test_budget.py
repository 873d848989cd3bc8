"""Bytes that are shared: never more than there are, first come first served."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from agentic_video.video.budget import Budget

WAIT = 30.0


def patience(seconds: float) -> None:
    """Waits as long as it takes."""


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_who_comes_late_waits() -> None:
    budget, order = Budget(10, lambda: False), list[int]()
    budget.acquire(8, patience)

    def ask(nbytes: int) -> None:
        budget.acquire(nbytes, patience)
        order.append(nbytes)

    threads = []
    for nbytes in (9, 1):  # the small one would fit, and waits its turn
        threads.append(threading.Thread(target=ask, args=(nbytes,)))
        threads[-1].start()
        until(lambda: len(budget._queue) == len(threads))
    assert order == [] and budget.held == 8
    budget.release(8)
    for thread in threads:
        thread.join(WAIT)
    assert order == [9, 1] and budget.held == 10


def test_what_is_larger_than_all_is_let_in_alone() -> None:
    budget = Budget(10, lambda: False)
    budget.acquire(1_000, patience)
    assert budget.held == 10
    budget.release(1_000)
    assert budget.held == 0


def test_what_is_idle_makes_room() -> None:
    idle = [3, 4]

    def make_room() -> bool:
        if idle:
            budget.release(idle.pop())
        return bool(idle)

    budget = Budget(10, make_room)
    budget.acquire(7, patience)  # stands for what is idle
    budget.acquire(6, patience)
    assert (idle, budget.held) == ([3], 9)


def test_who_gives_up_leaves_the_queue() -> None:
    def no_patience(seconds: float) -> None:
        raise TimeoutError

    budget = Budget(10, lambda: False)
    budget.acquire(10, patience)
    with pytest.raises(TimeoutError):
        budget.acquire(1, no_patience)
    budget.release(10)
    budget.acquire(10, no_patience)


def test_waiting_counts_by_the_clock() -> None:
    budget, waited = Budget(10, lambda: False), list[float]()
    budget.acquire(10, patience)
    thread = threading.Thread(target=budget.acquire, args=(10, waited.append))
    thread.start()
    until(lambda: bool(budget._queue))
    for _ in range(200):  # each wakes who waits
        budget.release(0)
        time.sleep(0.0005)
    budget.release(10)
    thread.join(WAIT)
    assert len(waited) > 1 and max(waited) < WAIT
    assert sum(waited) < WAIT


def test_never_more_than_there_is() -> None:
    budget, most, lock, held = Budget(10, lambda: False), 0, threading.Lock(), 0

    def work() -> None:
        nonlocal most, held
        for nbytes in (3, 7, 10, 1, 5) * 20:
            budget.acquire(nbytes, patience)
            with lock:
                held += nbytes
                most = max(most, held)
            with lock:
                held -= nbytes
            budget.release(nbytes)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert most <= 10 and budget.held == 0
