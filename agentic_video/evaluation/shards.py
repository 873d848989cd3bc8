"""An evaluation on many GPUs: each shard is a Ray task with its own engine and its own journal."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from agentic_video.evaluation.model import ModelSpec
from agentic_video.evaluation.plan import EvalPlan
from agentic_video.evaluation.results import FAILURES, JOURNALS, Failure
from agentic_video.evaluation.runner import play_rows
from agentic_video.types.record import Record, RecordError
from agentic_video.types.row import VideoQA
from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.utils.host import count_gpus
from agentic_video.utils.process import take_image_threads
from agentic_video.utils.ray_cluster import own_token, unanswered
from agentic_video.utils.secrets import KEYS_FILE, forwarded, hand_keys, load_secrets

POLL_SECONDS = 1.0
"""Between two looks at what shards wrote."""


class Follower:
    """Reads what shards add to their files."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._read = {path: path.stat().st_size for path in self._paths()}

    def _paths(self) -> list[Path]:
        return [*sorted(self._folder.glob(JOURNALS)), *sorted(self._folder.glob(FAILURES))]

    def new(self) -> list[Record | Failure]:
        """Records and failures since the last time; a line that isn't whole yet comes next time."""
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
    """Number of processes: as many as asked, else one for each group of GPUs of this machine or Ray's cluster."""
    if asked is not None or model.engine != "vllm":
        return asked or 1
    if os.environ.get("RAY_ADDRESS"):
        ray = _joined()
        gpus = int(ray.cluster_resources().get("GPU", 0))
    else:
        gpus = count_gpus()
    return max(1, gpus // int(model.vllm.get("tensor_parallel_size", 1)))


def _joined() -> Any:
    """Ray, on the cluster at ``RAY_ADDRESS``."""
    import ray

    address = os.environ["RAY_ADDRESS"]
    problem = unanswered(address)
    if not problem:
        try:
            ray.init(ignore_reinit_error=True)
        except ConnectionError as error:
            problem = f"can't join the Ray cluster at {address}: {one_line(error)}"
    if problem:
        raise SetupError(f"{problem}; without RAY_ADDRESS this machine's GPUs play")
    return ray


def _key_names(part: Any) -> Iterator[str]:
    """Names of the environment variables of keys, wherever a plan holds them: the judge's, the server's, a tool's."""
    for name in (field.name for field in fields(part)) if is_dataclass(part) else ():
        value = getattr(part, name)
        if name == "api_key_env":
            yield str(value)
        else:
            yield from _key_names(value)


@contextlib.contextmanager
def _handed_over(plan: EvalPlan, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The variables that shards on a cluster get of this command's: those on this machine inherit them."""
    if not environment.get("RAY_ADDRESS"):
        yield {}
        return
    variables = forwarded(environment)
    if path := environment.get("PYTHONPATH"):
        variables["PYTHONPATH"] = path  # where a recipe's own modules are
    try:
        yield {**variables, **hand_keys(plan.folder, environment, _key_names(plan))}
    finally:
        (plan.folder / KEYS_FILE).unlink(missing_ok=True)


def play_shard(plan: EvalPlan, rows: Sequence[VideoQA], shard: int) -> None:
    """One shard, in a process of its own."""
    load_secrets()
    if plan.model.engine == "vllm":
        take_image_threads(int(plan.model.vllm.get("tensor_parallel_size", 1)))
    asyncio.run(play_rows(plan, rows, shard, lambda result: None))


def play_sharded(
    plan: EvalPlan, rows: Sequence[VideoQA], shards: int, done: Callable[[Record | Failure], None]
) -> None:
    """Play rows in several Ray tasks, on the cluster at ``RAY_ADDRESS`` or on this machine."""
    if not os.environ.get("RAY_ADDRESS") and "ray" not in sys.modules:  # Ray reads it when it is imported
        os.environ.update(own_token(os.environ))
    import ray

    gpus_each = int(plan.model.vllm.get("tensor_parallel_size", 1)) if plan.model.engine == "vllm" else 0
    if not os.environ.get("RAY_ADDRESS"):
        gpus = count_gpus()
        gpus_each = gpus_each if gpus else 0
        # not the cluster that may happen to run here, or is remembered to have run
        ray.init("local", num_cpus=shards, num_gpus=gpus, include_dashboard=False, ignore_reinit_error=True)
    else:
        _joined()
        if os.path.isdir(plan.model.model):  # the shards have another working directory
            plan = replace(plan, model=replace(plan.model, model=os.path.abspath(plan.model.model)))
    with _handed_over(plan, os.environ) as handed:
        _play_tasks(plan, rows, shards, gpus_each, {**handed, **COMMON_ENV, **({} if gpus_each else LAPTOP_ENV)}, done)


def _play_tasks(
    plan: EvalPlan,
    rows: Sequence[VideoQA],
    shards: int,
    gpus_each: int,
    variables: Mapping[str, str],
    done: Callable[[Record | Failure], None],
) -> None:
    """The Ray tasks of :func:`play_sharded`."""
    import ray

    task: Any = ray.remote(play_shard).options(
        num_cpus=1, num_gpus=gpus_each, max_retries=0, runtime_env={"env_vars": dict(variables)}
    )
    follower = Follower(plan.folder)
    running = [task.remote(plan, list(rows[shard::shards]), shard) for shard in range(shards) if rows[shard::shards]]
    errors: list[str] = []
    try:
        while running:
            ended, running = ray.wait(running, timeout=POLL_SECONDS)
            for result in follower.new():
                done(result)
            for task_ref in ended:
                try:
                    ray.get(task_ref)
                except ray.exceptions.RayError as error:
                    errors.append(str(error).strip().splitlines()[-1])
    finally:
        for task_ref in running:
            ray.cancel(task_ref, force=True)
    for result in follower.new():
        done(result)
    if errors:
        raise SetupError(
            f"{len(errors)} shards died, the first with: {errors[0]}; the same command plays what is missing"
        )
