"""The threads of a frame store: a decoder that hangs loses its place to a fresh one."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from agentic_video.video.errors import VideoError

GRACE_SECONDS = 1.0
"""Beyond its time limit by this much a decoder counts as stuck, having missed its own checks."""


@dataclass(eq=False)
class Job:
    """Work for a thread on one video.

    Attributes:
        path: The video.
        run: What to do; is given the job.
        limit: Seconds that it may take.
        future: Gets what ``run`` returns or raises.
        claims: What the job has announced that it will produce, for others to wait for; its owner's to use.
        spare: Whether it only runs while nobody else needs the threads, on at most half of them (one at least).
        end: When its time is up, on the monotonic clock (seconds); infinite until a thread has taken it up.
        waited: Seconds that it has waited for others, which ``end`` allows for.
        held: Bytes that are set aside for it; its owner's to use.
    """

    path: str
    run: Callable[[Job], Any]
    limit: float
    future: Future[Any] = field(default_factory=Future)
    claims: dict[Any, Future[Any]] = field(default_factory=dict)
    spare: bool = False
    end: float = math.inf
    waited: float = 0.0
    held: int = 0

    def time_left(self) -> float:
        """Seconds before the time limit; a little when it has passed, so that whoever gets it fails at once."""
        return max(self.end - time.monotonic(), 1e-6)


class Workers:
    """A few daemon threads, started when there is work; a stuck one is replaced, which no stock executor does.

    Args:
        count: Most threads at a time, those that are stuck not counted.
        on_stuck: Called once with a job that is given up and the error that its future gets.
        on_return: Called when such a job has ended after all; before ``on_stuck`` where it ends just as it is given up.
    """

    def __init__(
        self, count: int, on_stuck: Callable[[Job, VideoError], None], on_return: Callable[[Job], None]
    ) -> None:
        self._count = count
        self._on_stuck = on_stuck
        self._on_return = on_return
        self._changed = threading.Condition()
        self._queue: deque[Job] = deque()
        self._spare: deque[Job] = deque()
        self._running: set[Job] = set()
        self._threads = 0
        self._watching = False

    def submit(self, job: Job) -> Future[Any]:
        """Queue a job, first come first served, spare ones last; the job's future is returned."""
        with self._changed:
            (self._spare if job.spare else self._queue).append(job)
            self._start_threads()
        return job.future

    def idle(self) -> int:
        """Threads that have nothing to do."""
        with self._changed:
            return max(0, self._count - len(self._running) - len(self._queue))

    def running(self) -> int:
        """Threads that have something to do."""
        with self._changed:
            return len(self._running)

    def wanted(self) -> bool:
        """Whether work waits for a thread that a spare job has."""
        with self._changed:
            return len(self._queue) > max(0, self._count - len(self._running))

    def _most_spare(self) -> int:
        return max(1, self._count // 2)

    def _next(self) -> Job | None:
        if self._queue:
            return self._queue.popleft()
        if self._spare and sum(job.spare for job in self._running) < self._most_spare():
            return self._spare.popleft()
        return None

    def _start_threads(self) -> None:
        room = max(0, self._most_spare() - sum(job.spare for job in self._running))
        for _ in range(min(len(self._queue) + min(room, len(self._spare)), self._count - self._threads)):
            self._threads += 1
            threading.Thread(target=self._work, name="frame-store", daemon=True).start()
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watch, name="frame-store-watch", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._changed:
                job = self._next()
                if job is None:
                    self._threads -= 1
                    return
                if not job.future.set_running_or_notify_cancel():
                    continue
                job.end = time.monotonic() + job.limit
                self._running.add(job)
                self._changed.notify()
            result, error = None, None
            try:
                result = job.run(job)
            except BaseException as raised:
                error = raised
            with self._changed:
                stuck = job not in self._running
                self._running.discard(job)
            if stuck:
                self._on_return(job)
                return
            if error is not None:
                job.future.set_exception(error)
            else:
                job.future.set_result(result)
            # Not to keep the last result alive while the thread idles.
            del job, result, error

    def _watch(self) -> None:
        """Give up on jobs that overrun their limit without noticing; ends when nothing runs."""
        while True:
            with self._changed:
                if not self._running and not self._queue and not self._spare:
                    self._watching = False
                    return
                now = time.monotonic()
                late = [job for job in self._running if now > job.end + GRACE_SECONDS]
                self._running.difference_update(late)
                self._threads -= len(late)
                if late:
                    self._start_threads()
                else:
                    ends = [job.end + GRACE_SECONDS for job in self._running]
                    self._changed.wait(max(0.01, min(ends, default=now + GRACE_SECONDS) - now))
            for job in late:
                error = VideoError(
                    job.path, "timeout", f"no answer within {job.limit:g} s; check the disk or leave the video out"
                )
                self._on_stuck(job, error)
                job.future.set_exception(error)
