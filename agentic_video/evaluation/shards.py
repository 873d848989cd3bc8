"""An evaluation on many GPUs: each shard is a Ray task with its own engine and its own journal."""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentic_video.evaluation.model import ModelSpec
from agentic_video.evaluation.plan import Plan
from agentic_video.evaluation.results import FAILURES, JOURNALS, Failure
from agentic_video.evaluation.runner import play_rows
from agentic_video.types.record import Record, RecordError
from agentic_video.types.row import VideoQA
from agentic_video.utils.devices import count_gpus
from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV
from agentic_video.utils.errors import SetupError
from agentic_video.utils.threads import take_image_threads

POLL_SECONDS = 1.0
"""Between two looks at what shards wrote."""


class Follower:
    """Reads what shards add to their files.

    Args:
        folder: Where the files are; what they hold already is passed over.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._read = {path: path.stat().st_size for path in self._paths()}

    def _paths(self) -> list[Path]:
        return [*sorted(self._folder.glob(JOURNALS)), *sorted(self._folder.glob(FAILURES))]

    def new(self) -> list[Record | Failure]:
        """What was added since the last time; a line that isn't whole yet comes next time."""
        found: list[Record | Failure] = []
        for path in self._paths():
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read[path] = self._read.get(path, 0) + len(line)
                    found += self._parse(line)
        return found

    def _parse(self, line: bytes) -> list[Record | Failure]:
        try:
            raw = json.loads(line)
            if isinstance(raw, dict) and "error" in raw:
                return [Failure((str(raw["data_source"]), str(raw["id"])), str(raw["error"]))]
            return [Record.from_dict(raw)]
        except (ValueError, KeyError, RecordError):
            return []  # a torn line of an earlier attempt


def count_shards(asked: int | None, model: ModelSpec) -> int:
    """How many processes play: as many as asked, else one for each group of GPUs of this machine or Ray's cluster.

    Args:
        model: Its tensor parallelism says how many GPUs a process needs.
    """
    if asked is not None or model.engine != "vllm":
        return asked or 1
    if os.environ.get("RAY_ADDRESS"):
        import ray

        ray.init(ignore_reinit_error=True)
        gpus = int(ray.cluster_resources().get("GPU", 0))
    else:
        gpus = count_gpus()
    return max(1, gpus // int(model.vllm.get("tensor_parallel_size", 1)))


def play_shard(plan: Plan, rows: Sequence[VideoQA], shard: int) -> None:
    """One shard, in a process of its own."""
    if plan.model.engine == "vllm":
        take_image_threads(int(plan.model.vllm.get("tensor_parallel_size", 1)))
    asyncio.run(play_rows(plan, rows, shard, lambda one: None))


def play_sharded(plan: Plan, rows: Sequence[VideoQA], shards: int, done: Callable[[Record | Failure], None]) -> None:
    """Play rows in several Ray tasks, on the cluster at ``RAY_ADDRESS`` or on this machine.

    Args:
        done: Told about every row, as the journals grow: the folder must be one that all machines share. What it raises
            stops all shards.

    Raises:
        SetupError: A shard died; what it had finished is kept.
    """
    import ray

    gpus_each = int(plan.model.vllm.get("tensor_parallel_size", 1)) if plan.model.engine == "vllm" else 0
    if not os.environ.get("RAY_ADDRESS"):
        gpus = count_gpus()
        gpus_each = gpus_each if gpus else 0
        ray.init(num_cpus=shards, num_gpus=gpus, include_dashboard=False, ignore_reinit_error=True)
    else:
        ray.init(ignore_reinit_error=True)
    variables = {**COMMON_ENV, **({} if gpus_each else LAPTOP_ENV)}
    if os.environ.get("RAY_ADDRESS") and (path := os.environ.get("PYTHONPATH")):
        variables["PYTHONPATH"] = path  # where a recipe's own modules are; a Ray of this machine's inherits it
    task: Any = ray.remote(play_shard).options(
        num_cpus=1, num_gpus=gpus_each, max_retries=0, runtime_env={"env_vars": variables}
    )
    follower = Follower(plan.folder)
    running = [task.remote(plan, list(rows[shard::shards]), shard) for shard in range(shards) if rows[shard::shards]]
    errors: list[str] = []
    try:
        while running:
            ended, running = ray.wait(running, timeout=POLL_SECONDS)
            for one in follower.new():
                done(one)
            for task_ref in ended:
                try:
                    ray.get(task_ref)
                except ray.exceptions.RayError as error:
                    errors.append(str(error).strip().splitlines()[-1])
    finally:
        for task_ref in running:
            ray.cancel(task_ref, force=True)
    for one in follower.new():
        done(one)
    if errors:
        raise SetupError(
            f"{len(errors)} shards died, the first with: {errors[0]}; the same command plays what is missing"
        )
