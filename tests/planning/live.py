"""The bytes of tensors that live, followed while code runs."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts the storages that operations make, for as long as anything holds them.

    Attributes:
        now: Bytes that live.
        peak: Most so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for given in tree_leaves((args, kwargs)):
            if isinstance(given, torch.Tensor):
                self._pass_over(given.untyped_storage())
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            if isinstance(made, torch.Tensor):
                self._count(made.untyped_storage())
        return result

    def _pass_over(self, storage: Any) -> None:
        """A storage that was there before, until it is freed: another may come to its place."""
        key = storage._cdata
        if key not in self._known:
            self._known.add(key)
            weakref.finalize(storage, self._known.discard, key)

    def _count(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def allocated_peak(events: Any) -> int:
    """The most bytes that torch's CPU allocator held at a time, of what a profile recorded: compiled code's too."""
    now = peak = 0
    for event in sorted((one for one in events if one.name() == "[memory]"), key=lambda one: one.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak
