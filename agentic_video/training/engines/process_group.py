"""Process groups of training, and the time that their ranks wait for each other.

verl's key for it (``actor_rollout_ref.nccl_timeout``) has no reader (verl issue 7815).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from torch.distributed import distributed_c10d, is_initialized
from verl.utils import distributed

from agentic_video.training.seams.patches import on_cpu

PATIENCE_SECONDS = 1800
"""Default timeout of collectives (``actor_rollout_ref.nccl_timeout`` of an RL run)."""
PATIENCE_ENV = "AGENTIC_VIDEO_PATIENCE_SECONDS"
"""Sets the timeout in SFT and KTO, which have no such key."""
CHECKPOINT_SECONDS = 7200
"""Timeout while a rank reads or writes a checkpoint: 33 GB of a 7B model at 5 MB/s."""


def patience() -> float:
    """Seconds that this process's collectives wait for other ranks."""
    return float(os.environ.get(PATIENCE_ENV) or PATIENCE_SECONDS)


def join_ray_group() -> None:
    """Join a Ray worker's process group before verl does: with torch's timeout, and a backend that CPUs don't have."""
    distributed.initialize_global_process_group_ray(timeout_second=patience(), backend="gloo" if on_cpu() else None)


def join_torchrun_group() -> None:
    """Join the process group of a job that torchrun started."""
    if on_cpu():
        join_ray_group()
    else:
        distributed.initialize_global_process_group(timeout_second=patience())


@contextmanager
def disk_patience() -> Iterator[None]:
    """Let ranks wait for each other as long as for a slow disk."""
    if not is_initialized():
        yield
        return
    distributed_c10d._set_pg_timeout(timedelta(seconds=max(patience(), CHECKPOINT_SECONDS)))
    try:
        yield
    finally:
        distributed_c10d._set_pg_timeout(timedelta(seconds=patience()))
