"""State of vLLM's workers that a sleeping engine would lose, and vLLM's waiting on few cores.

A sleeping worker releases the memory of its model and of its KV cache. vLLM restores parameters and buffers only: lost
are Qwen3-VL's deepstack inputs, which are added to the first decoder layers of every batch, and what attention backends
keep in addition to the KV cache. Here they are saved before the memory is released.
"""

import gc
import math
import time
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from itertools import chain
from types import ModuleType
from typing import Any

import torch

WEIGHTS, KV_CACHE = "weights", "kv_cache"
"""vLLM's names of the two parts of a worker's memory."""
MOST_KV_BYTES = 64 << 20
"""Largest tensor outside the model that is saved: the KV cache is larger, and may be lost."""


@dataclass(frozen=True)
class KeptTensor:
    """A saved tensor: the part of the worker's memory, its bytes there, and a copy of them (None: all are 0)."""

    part: str
    memory: torch.Tensor
    content: torch.Tensor | None

    def restore(self) -> None:
        """Write the content back."""
        if self.content is None:
            self.memory.zero_()
        else:
            self.memory.copy_(self.content)


class SleepingMemory:
    """A worker's memory as vLLM's allocator lists it: by address, with the size in ``handle``, and a ``tag``."""

    def __init__(self, allocations: Mapping[int, Any]):
        self._starts = sorted(allocations)
        self._parts = [(allocations[start].handle[1], allocations[start].tag) for start in self._starts]

    def part_of(self, address: int) -> str | None:
        """The part of the memory that has this address, if any."""
        number = bisect_right(self._starts, address) - 1
        if number < 0:
            return None
        size, tag = self._parts[number]
        return tag if address < self._starts[number] + size else None


def _memory_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The memory of a tensor, if it has its own."""
    try:
        storage = tensor.untyped_storage()
        return storage if storage.data_ptr() else None
    except (NotImplementedError, RuntimeError):  # a tensor of another layout, or one that stands for others
        return None


def unnamed_memory(models: Collection[torch.nn.Module], memory: SleepingMemory) -> Iterator[tuple[str, torch.Tensor]]:
    """Part and bytes of each tensor in a worker's memory that is neither parameter nor buffer of its models."""
    named = chain.from_iterable(chain(model.parameters(), model.buffers()) for model in models)
    known = {storage.data_ptr() for tensor in named if (storage := _memory_of(tensor)) is not None}
    for found in gc.get_objects():
        if not issubclass(type(found), torch.Tensor) or (storage := _memory_of(found)) is None:
            continue
        address = storage.data_ptr()
        if address in known or (part := memory.part_of(address)) is None:
            continue
        known.add(address)
        yield part, torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def saved_tensors(models: Collection[torch.nn.Module], memory: SleepingMemory, level: int) -> list[KeptTensor]:
    """Copies of what a worker would lose when it sleeps, at level 1 (vLLM keeps all that was loaded) or 2."""
    return [
        KeptTensor(part, content, content.to("cpu", copy=True) if bool(content.any()) else None)
        for part, content in unnamed_memory(models, memory)
        if (part == WEIGHTS and level > 1) or (part != WEIGHTS and len(content) <= MOST_KV_BYTES)
    ]


def keep_state(gpu_worker: ModuleType) -> None:
    """Save and restore, around a sleep, what vLLM's workers would lose."""
    worker = gpu_worker.Worker
    fall_asleep, wake = worker.sleep, worker.wake_up

    @wraps(fall_asleep)
    def sleep(self: Any, level: int = 1) -> None:
        memory = SleepingMemory(gpu_worker.get_mem_allocator_instance().pointer_to_data)
        self.kept_tensors = saved_tensors([self.model_runner.model], memory, level)
        fall_asleep(self, level)

    @wraps(wake)
    def wake_up(self: Any, tags: list[str] | None = None) -> None:
        wake(self, tags)
        back: list[KeptTensor] = []
        away: list[KeptTensor] = []
        for kept in getattr(self, "kept_tensors", ()):
            (back if tags is None or kept.part in tags else away).append(kept)
        for kept in back:
            kept.restore()
        self.kept_tensors = away

    worker.sleep, worker.wake_up = sleep, wake_up


POLL_MILLISECONDS = 5


def sleep_between_messages(shm_broadcast: ModuleType) -> None:
    """Wait for the writer's notification instead of spinning."""
    original = shm_broadcast.SpinCondition.wait

    @wraps(original)
    def wait(self: Any, timeout_ms: int | None = None) -> None:
        spins = time.monotonic() <= self.last_read + self.busy_loop_s
        busy_loop_s, self.busy_loop_s = self.busy_loop_s, -math.inf
        try:
            # Bounded while vLLM would spin, so that a notification sent before the reader listened isn't waited for.
            original(self, POLL_MILLISECONDS if spins else timeout_ms)
        finally:
            self.busy_loop_s = busy_loop_s

    shm_broadcast.SpinCondition.wait = wait
