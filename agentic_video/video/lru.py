"""A cache that is bounded by the size of what it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cachetools import LRUCache

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(LRUCache[K, V]):
    """Least recently used first out; counts what it drops, and leaves out a value larger than its bound.

    Not thread-safe. A ``LRUCache`` raises on a value that is too large.

    Args:
        maxsize: Most that the sizes of all values may add up to.
        getsizeof: Size of a value; None counts each as 1.

    Attributes:
        evicted: Values dropped to make room for others; replaced and cleared ones don't count.
    """

    def __init__(self, maxsize: int, getsizeof: Callable[[V], int] | None = None) -> None:
        super().__init__(maxsize, getsizeof)
        self.evicted = 0

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        if self.getsizeof(value) <= self.maxsize:
            held = len(self)
            super().__setitem__(key, value)
            self.evicted += held + 1 - len(self)
