"""Pixels of a pass's micro-batches, each made while the one before is computed."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, wraps
from types import ModuleType
from typing import Any

WAITED = "wait_pixels_max_s"
"""Metric of an update: seconds that a process has waited for pixels so far, of all ranks the most."""
Make = Callable[[Any], Any]
"""From a micro-batch to its pixels."""


class PixelsAhead:
    """Makes the pixels of micro-batches in a thread, one ahead of the pass that takes them.

    Attributes:
        waited: Seconds that passes have waited for pixels.
    """

    def __init__(self) -> None:
        # Also where nothing is ahead: Ray complains of waiting on the thread of an actor's event loop.
        self._thread = ThreadPoolExecutor(1, "pixels")
        self._coming: deque[Any] = deque()
        self._next: Future[Any] | None = None
        self._make: Make | None = None
        self.waited = 0.0

    @contextmanager
    def one_pass(self, make: Make) -> Iterator[None]:
        """A pass of verl's engine, which announces its micro-batches as soon as they are there."""
        self._make = make
        try:
            yield
        finally:
            self._make = None
            self.expect(())  # a pass that failed leaves some

    def expect(self, micro_batches: Sequence[Any]) -> None:
        """Begin with the first of those that a pass takes next, in this order; outside a pass nothing is made."""
        self._coming = deque(micro_batches if self._make else ())
        self._begin()

    def _begin(self) -> None:
        ahead = self._make and self._coming
        self._next = self._thread.submit(self._make, self._coming.popleft()) if ahead else None  # type: ignore[arg-type]

    def take(self, micro_batch: Any, make: Make) -> Any:
        """Pixels of the next micro-batch; begins with those of the one after it."""
        started = time.perf_counter()
        made = (self._next or self._thread.submit(make, micro_batch)).result()
        self.waited += time.perf_counter() - started
        self._begin()
        return made


@cache
def shared_pixels() -> PixelsAhead:
    """This process's, for the actor and the reference model, whose passes take turns."""
    return PixelsAhead()


def announced_micro_batches(transformer_impl: ModuleType) -> None:
    """Have verl's engine announce a pass's micro-batches."""
    original = transformer_impl.prepare_micro_batches

    @wraps(original)
    def prepare_micro_batches(*args: Any, **named: Any) -> Any:
        micro_batches, indices = original(*args, **named)
        shared_pixels().expect(micro_batches)
        return micro_batches, indices

    transformer_impl.prepare_micro_batches = prepare_micro_batches  # type: ignore[attr-defined]
