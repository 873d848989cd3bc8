"""A cache that is bounded by the size of what it holds."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")


V = TypeVar("V")


class SizedLRU(Generic[K, V]):
    """Least recently used first out, bounded by the sum of the sizes; not thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.total = 0
        self.evicted = 0

    def get(self, key: K) -> V | None:
        item = self._items.get(key)
        if item is None:
            return None
        self._items.move_to_end(key)
        return item[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keeps a value; one larger than the bound is not kept."""
        old = self._items.pop(key, None)
        if old is not None:
            self.total -= old[1]
        if size > self._limit:
            return
        while self.total + size > self._limit:
            _, (_, freed) = self._items.popitem(last=False)
            self.total -= freed
            self.evicted += 1
        self._items[key] = (value, size)
        self.total += size

    def clear(self) -> None:
        self._items.clear()
        self.total = 0
