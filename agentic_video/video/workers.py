"""Threads and memory that a store's decoders share. A decoder that hangs is replaced by a fresh thread."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agentic_video.video.errors import VideoError

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

GRACE_SECONDS = 1.0
"""A decoder that overruns its time limit by this much has missed its own checks, and counts as stuck."""
_POLL_SECONDS = 0.25


@dataclass(eq=False)
class DecodeJob:
    """Work for a thread on one video."""

    path: str
    run: Callable[[DecodeJob], Any]
    limit: float
    """Seconds."""
    future: Future[Any] = field(default_factory=Future)
    claims: dict[Any, Future[Any]] = field(default_factory=dict)
    """Results that the job has announced, for others to wait for."""
    spare: bool = False
    """Runs only on threads without other work, on at most half of them."""
    end: float = math.inf
    """Monotonic time at which it runs out of time; infinite until it starts."""
    waited: float = 0.0
    """Seconds spent waiting for memory, by which ``end`` was moved."""
    held: int = 0
    """Bytes reserved for it."""

    def allow(self, seconds: float) -> None:
        """Give it more time than its limit: what is to be done turns out to be large."""
        self.limit += seconds
        self.end += seconds

    def time_left(self) -> float:
        """Seconds before the time limit, always above 0."""
        return max(self.end - time.monotonic(), 1e-6)


class Workers:
    """A few daemon threads, started when there is work; stuck ones are replaced.

    Args:
        count: Most threads at a time, stuck ones not counted.
        on_stuck: Called once with an abandoned job and the error that its future gets.
        on_return: Called when such a job ends after all; before ``on_stuck`` if it ends just as it is abandoned.
    """

    def __init__(
        self,
        count: int,
        on_stuck: Callable[[DecodeJob, VideoError], None],
        on_return: Callable[[DecodeJob], None],
    ) -> None:
        self._count = count
        self._on_stuck = on_stuck
        self._on_return = on_return
        self._changed = threading.Condition()
        self._queue: deque[DecodeJob] = deque()
        self._spare: deque[DecodeJob] = deque()
        self._running: set[DecodeJob] = set()
        self._threads = 0
        self._watching = False

    def submit(self, job: DecodeJob) -> Future[Any]:
        """Queue a job, first come first served, spare ones last; returns its future."""
        with self._changed:
            (self._spare if job.spare else self._queue).append(job)
            self._start_threads()
        return job.future

    def idle(self) -> int:
        """Number of threads without work."""
        with self._changed:
            return max(0, self._count - len(self._running) - len(self._queue))

    def running(self) -> int:
        """Number of threads at work."""
        with self._changed:
            return len(self._running)

    def has_waiting(self) -> bool:
        """Return True if work waits for a thread that runs a spare job."""
        with self._changed:
            return len(self._queue) > max(0, self._count - len(self._running))

    def _max_spare(self) -> int:
        return max(1, self._count // 2)

    def _next(self) -> DecodeJob | None:
        if self._queue:
            return self._queue.popleft()
        if self._spare and sum(job.spare for job in self._running) < self._max_spare():
            return self._spare.popleft()
        return None

    def _start_threads(self) -> None:
        room = max(0, self._max_spare() - sum(job.spare for job in self._running))
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
        """Abandon jobs that overrun their limit without noticing; ends when nothing runs."""
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


class MemoryBudget:
    """A bound on bytes held at the same time, first come first served; a larger request is let in alone.

    Args:
        limit: Most bytes.
        make_room: Releases something that isn't needed; False if there was nothing. Called without locks.
    """

    def __init__(self, limit: int, make_room: Callable[[], bool]):
        self.limit = limit
        self._make_room = make_room
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._held = self._changes = 0

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._held

    @property
    def has_waiting(self) -> bool:
        """Return True if a request waits."""
        return bool(self._queue)

    def acquire(self, nbytes: int, waiting: Callable[[float], None]) -> None:
        """Hold bytes. ``waiting`` is called after each short wait with its seconds; its exception ends the wait."""
        nbytes = min(nbytes, self.limit)
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
        try:
            while True:
                with self._changed:
                    if self._queue[0] is ticket and self._held + nbytes <= self.limit:
                        self._held += nbytes
                        return
                    first, changes = self._queue[0] is ticket, self._changes
                if first and self._make_room():
                    continue
                begun = time.monotonic()
                with self._changed:
                    if changes == self._changes:
                        self._changed.wait(_POLL_SECONDS)
                waiting(time.monotonic() - begun)
        finally:
            with self._changed:
                self._queue.remove(ticket)
                self._notify()

    def release(self, nbytes: int) -> None:
        """Give back as many bytes as were acquired."""
        with self._changed:
            self._held -= min(nbytes, self.limit)
            self._notify()

    def _notify(self) -> None:
        self._changes += 1
        self._changed.notify_all()


def map_in_parallel(
    executor: Executor,
    items: Iterator[tuple[K, V]],
    work: Callable[[V], T],
    most: int,
    has_room: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[K, T]]:
    """Apply ``work`` on other threads while this one produces the next items, at most ``most`` at a time.

    Results come in the order of the items; if producing fails, those of earlier items come first. While ``has_room``
    is false, this thread does the work itself.
    """
    running: deque[tuple[K, Future[T]]] = deque()
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
            running.append((key, executor.submit(work, value)))
        else:
            while running:
                earlier, future = running.popleft()
                yield earlier, future.result()
            yield key, work(value)
        del value
        while running and (len(running) >= most or running[0][1].done()):
            key, future = running.popleft()
            yield key, future.result()
    for key, future in running:
        yield key, future.result()
    if error is not None:
        raise error
