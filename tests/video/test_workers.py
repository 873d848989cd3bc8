"""The store's threads: first come first served, never more than allowed, never stuck."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from agentic_video.video import workers as module
from agentic_video.video.errors import VideoError
from agentic_video.video.workers import Job, Workers

WAIT = 30.0
"""Seconds after which a test that hangs fails."""


class Told:
    """Keeps what the workers tell, and in which order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.returned = threading.Event()

    def on_stuck(self, job: Job, error: VideoError) -> None:
        assert error.reason == "timeout" and error.path == job.path
        self.events.append(("stuck", job.path))

    def on_return(self, job: Job) -> None:
        self.events.append(("returned", job.path))
        self.returned.set()

    def workers(self, count: int) -> Workers:
        return Workers(count, self.on_stuck, self.on_return)


def job(run: Any, path: str = "a.mp4", limit: float = WAIT) -> Job:
    return Job(path, run, limit)


def test_results_and_errors_reach_their_futures() -> None:
    told = Told()
    workers = told.workers(2)

    def fail(job: Job) -> None:
        raise ValueError(job.path)

    futures = [workers.submit(job(lambda one: one.path, path)) for path in "abc"]
    assert [future.result(WAIT) for future in futures] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="d"):
        workers.submit(job(fail, "d")).result(WAIT)
    assert told.events == []


def test_no_more_run_at_a_time_than_allowed() -> None:
    running: list[int] = []
    lock, count = threading.Lock(), 0

    def run(_: Job) -> None:
        nonlocal count
        with lock:
            count += 1
            running.append(count)
        time.sleep(0.002)
        with lock:
            count -= 1

    workers = Told().workers(3)
    for future in [workers.submit(job(run)) for _ in range(30)]:
        future.result(WAIT)
    assert len(running) == 30 and max(running) <= 3


def test_one_thread_takes_jobs_in_their_order() -> None:
    order: list[str] = []
    workers = Told().workers(1)
    for future in [workers.submit(job(lambda one: order.append(one.path), str(n))) for n in range(20)]:
        future.result(WAIT)
    assert order == [str(n) for n in range(20)]


def test_a_limit_counts_from_the_moment_a_thread_takes_the_job() -> None:
    release = threading.Event()
    workers = Told().workers(1)
    first = workers.submit(job(lambda _: release.wait(WAIT)))
    waiting = job(lambda one: one.time_left(), limit=5.0)
    second = workers.submit(waiting)
    assert waiting.time_left() == float("inf")
    release.set()
    assert first.result(WAIT) and 0 < second.result(WAIT) <= 5.0


def test_a_cancelled_job_never_runs() -> None:
    release, ran = threading.Event(), []
    workers = Told().workers(1)
    first = workers.submit(job(lambda _: release.wait(WAIT)))
    second = workers.submit(job(lambda _: ran.append(1)))
    assert second.cancel()
    release.set()
    assert first.result(WAIT) and workers.submit(job(lambda _: "last")).result(WAIT) == "last"
    assert ran == []


def test_a_stuck_job_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.02)
    release, told = threading.Event(), Told()
    workers = told.workers(1)
    stuck = workers.submit(job(lambda _: release.wait(WAIT), "stuck.mp4", limit=0.02))
    # the only place is the stuck job's: this one runs in a fresh thread
    assert workers.submit(job(lambda _: "sound")).result(WAIT) == "sound"
    with pytest.raises(VideoError, match=r"no answer within 0\.02 s"):
        stuck.result(WAIT)
    assert told.events == [("stuck", "stuck.mp4")]
    release.set()
    assert told.returned.wait(WAIT)
    assert told.events == [("stuck", "stuck.mp4"), ("returned", "stuck.mp4")]
    assert workers.submit(job(lambda _: "again")).result(WAIT) == "again"
