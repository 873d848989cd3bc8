"""What vLLM loads in each of its processes (entry point group ``vllm.general_plugins``)."""

import math
import time
from functools import cache
from types import ModuleType
from typing import Any

from wrapt import register_post_import_hook

from agentic_video.training.seams.patches import on_cpu

POLL_MILLISECONDS = 5


def sleep_between_messages(shm_broadcast: ModuleType) -> None:
    """vLLM's engine and its worker spin for a second after each message; on few cores the one that waits takes the
    core that the other needs. Here they wait for the writer's notification instead."""
    original = shm_broadcast.SpinCondition.wait

    def wait(self: Any, timeout_ms: int | None = None) -> None:
        spins = time.monotonic() <= self.last_read + self.busy_loop_s
        busy_loop_s, self.busy_loop_s = self.busy_loop_s, -math.inf
        try:
            # Bounded while vLLM would spin, so that a notification sent before the reader listened isn't waited for.
            original(self, POLL_MILLISECONDS if spins else timeout_ms)
        finally:
            self.busy_loop_s = busy_loop_s

    shm_broadcast.SpinCondition.wait = wait


def _keep_state(gpu_worker: ModuleType) -> None:
    from agentic_video.training.seams.vllm_sleep import keep_state

    keep_state(gpu_worker)


@cache
def install() -> None:
    """Register the hooks; vLLM may call it several times."""
    register_post_import_hook(_keep_state, "vllm.v1.worker.gpu_worker")
    if on_cpu():
        register_post_import_hook(sleep_between_messages, "vllm.distributed.device_communicators.shm_broadcast")
