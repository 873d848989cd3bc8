"""Threads and memory of a store: first come first served, never more than allowed, never stuck."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agentic_video.video.errors import VideoError
from agentic_video.video.workers import DecodeJob, MemoryBudget, Workers, map_in_parallel

WAIT = 30.0
"""Seconds after which a test that hangs fails."""


class Events:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.returned = threading.Event()

    def on_stuck(self, job: DecodeJob, error: VideoError) -> None:
        assert error.reason == "timeout" and error.path == job.path
        self.events.append(("stuck", job.path))

    def on_return(self, job: DecodeJob) -> None:
        self.events.append(("returned", job.path))
        self.returned.set()

    def workers(self, count: int) -> Workers:
        return Workers(count, self.on_stuck, self.on_return)


def make_job(run: Any, path: str = "a.mp4", limit: float = WAIT) -> DecodeJob:
    return DecodeJob(path, run, limit)


def test_results_and_errors_reach_their_futures_in_order() -> None:
    order: list[str] = []
    recorder = Events()
    workers = recorder.workers(1)

    def run(job: DecodeJob) -> str:
        order.append(job.path)
        if job.path == "7":
            raise ValueError(job.path)
        return job.path

    futures = [workers.submit(make_job(run, str(number))) for number in range(20)]
    for number, future in enumerate(futures):
        if number == 7:
            with pytest.raises(ValueError, match="7"):
                future.result(WAIT)
        else:
            assert future.result(WAIT) == str(number)
    assert order == [str(number) for number in range(20)] and recorder.events == []


def test_no_more_jobs_run_at_a_time_than_allowed() -> None:
    running: list[int] = []
    lock, count = threading.Lock(), 0

    def run(_: DecodeJob) -> None:
        nonlocal count
        with lock:
            count += 1
            running.append(count)
        time.sleep(0.002)
        with lock:
            count -= 1

    workers = Events().workers(3)
    for future in [workers.submit(make_job(run)) for _ in range(30)]:
        future.result(WAIT)
    assert len(running) == 30 and max(running) <= 3


def test_a_limit_counts_from_the_start_of_a_job_and_a_cancelled_one_never_starts() -> None:
    release, ran = threading.Event(), []
    workers = Events().workers(1)
    first = workers.submit(make_job(lambda _: release.wait(WAIT)))
    waiting = make_job(lambda job: job.time_left(), limit=5.0)
    second = workers.submit(waiting)
    third = workers.submit(make_job(lambda _: ran.append(1)))
    assert waiting.time_left() == float("inf") and third.cancel()
    release.set()
    assert first.result(WAIT) and 0 < second.result(WAIT) <= 5.0
    assert workers.submit(make_job(lambda _: "last")).result(WAIT) == "last" and ran == []


def ignore(seconds: float) -> None:
    """Waits as long as it takes."""


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_memory_goes_to_the_first_that_waits() -> None:
    budget, order = MemoryBudget(10, lambda: False), list[int]()
    budget.acquire(8, ignore)

    def ask(nbytes: int) -> None:
        budget.acquire(nbytes, ignore)
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


def test_a_request_larger_than_the_budget_is_let_in_alone_and_idle_memory_makes_room() -> None:
    budget = MemoryBudget(10, lambda: False)
    budget.acquire(1_000, ignore)
    assert budget.held == 10
    budget.release(1_000)
    assert budget.held == 0

    idle = [3, 4]

    def make_room() -> bool:
        if idle:
            budget.release(idle.pop())
        return bool(idle)

    budget = MemoryBudget(10, make_room)
    budget.acquire(7, ignore)  # stands for idle readers
    budget.acquire(6, ignore)
    assert (idle, budget.held) == ([3], 9)


def test_a_waiter_that_gives_up_leaves_the_queue() -> None:
    def give_up(seconds: float) -> None:
        raise TimeoutError

    budget = MemoryBudget(10, lambda: False)
    budget.acquire(10, ignore)
    with pytest.raises(TimeoutError):
        budget.acquire(1, give_up)
    budget.release(10)
    budget.acquire(10, give_up)


def test_waiting_is_measured_by_the_clock_and_the_budget_is_never_exceeded() -> None:
    budget, most, lock, held = MemoryBudget(10, lambda: False), 0, threading.Lock(), 0
    waited: list[float] = []

    def work() -> None:
        nonlocal most, held
        for nbytes in (3, 7, 10, 1, 5) * 20:
            budget.acquire(nbytes, waited.append)
            with lock:
                held += nbytes
                most = max(most, held)
            with lock:
                held -= nbytes
            budget.release(nbytes)

    threads = [threading.Thread(target=work) for _ in range(4)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert most <= 10 and budget.held == 0
    assert sum(waited) <= 4 * (time.monotonic() - begun)


def test_parallel_results_come_in_order_with_few_items_under_way() -> None:
    produced: list[int] = []

    def items() -> Iterator[tuple[str, int]]:
        for number in range(20):
            produced.append(number)
            yield str(number), number

    with ThreadPoolExecutor(3) as executor:
        for position, (key, result) in enumerate(map_in_parallel(executor, items(), lambda number: number**2, 4)):
            assert (key, result) == (str(position), position**2)
            assert len(produced) <= position + 4


def test_earlier_results_come_before_a_failure() -> None:
    def items() -> Iterator[tuple[int, int]]:
        yield 1, 1
        yield 2, 2
        raise ValueError("no more")

    got: list[int] = []
    with ThreadPoolExecutor(1) as executor, pytest.raises(ValueError, match="no more"):
        for _, result in map_in_parallel(executor, items(), lambda number: number, 8):
            got.append(result)
    assert got == [1, 2]
    with ThreadPoolExecutor(1) as executor, pytest.raises(ZeroDivisionError):
        list(map_in_parallel(executor, iter([(1, 0)]), lambda number: 1 // number, 2))


def test_without_a_free_processor_this_thread_does_the_work() -> None:
    room = iter([True, False, True, False])
    done_by: dict[int, str] = {}

    def work(number: int) -> int:
        done_by[number] = threading.current_thread().name
        return -number

    with ThreadPoolExecutor(1, "another") as executor:
        found = list(map_in_parallel(executor, ((n, n) for n in range(4)), work, 8, lambda: next(room)))
    assert found == [(0, 0), (1, -1), (2, -2), (3, -3)], "still in order"
    assert [done_by[n].startswith("another") for n in range(4)] == [True, False, True, False]
