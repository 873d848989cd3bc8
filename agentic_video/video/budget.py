"""Bytes that decoders share: who needs more than is left waits for its turn."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

_SLICE = 0.25


class Budget:
    """A bound on bytes that are held at the same time.

    What is larger than all of it is let in alone.

    Args:
        limit: Most bytes.
        make_room: Releases something that is held and isn't needed; whether there was anything. Called without locks.
    """

    def __init__(self, limit: int, make_room: Callable[[], bool]):
        self.limit = limit
        self._make_room = make_room
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._held = self._changes = 0

    @property
    def held(self) -> int:
        """Bytes that are held."""
        return self._held

    @property
    def wanted(self) -> bool:
        """Whether somebody waits."""
        return bool(self._queue)

    def acquire(self, nbytes: int, waiting: Callable[[float], None]) -> None:
        """Hold bytes, first come first served.

        Args:
            nbytes: How many.
            waiting: Called after each short wait with its seconds; whatever it raises ends the waiting.
        """
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
                        self._changed.wait(_SLICE)
                waiting(time.monotonic() - begun)
        finally:
            with self._changed:
                self._queue.remove(ticket)
                self._notify()

    def release(self, nbytes: int) -> None:
        """Give bytes back, as many as were asked for."""
        with self._changed:
            self._held -= min(nbytes, self.limit)
            self._notify()

    def _notify(self) -> None:
        self._changes += 1
        self._changed.notify_all()
