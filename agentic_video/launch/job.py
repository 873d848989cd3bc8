"""One training with what it needs beside it: a place for temporary files, a Ray cluster, a verifier, keys."""

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from omegaconf import DictConfig

from agentic_video.launch.fork_server import SWITCH, Forks, fork_server
from agentic_video.launch.handover import key_names, own_address
from agentic_video.launch.inputs import handed_over
from agentic_video.launch.machine import clean_machine, shared_segments
from agentic_video.launch.nodes import Cluster, Wanted, check_cluster
from agentic_video.launch.options import ON_TOYWORLD, LaunchOptions, Profile
from agentic_video.launch.process import run_verl
from agentic_video.launch.profile import on_ray_cluster
from agentic_video.launch.ray_nodes import ray_nodes
from agentic_video.launch.run_folder import metrics_file, write_record
from agentic_video.launch.stage import (
    checkpoints_folder,
    folder_overrides,
    ray_overrides,
    scorer_overrides,
    worker_overrides,
)
from agentic_video.launch.toyworld import verifier_server
from agentic_video.planning.job import gpus_beside
from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV
from agentic_video.utils.imports import own_modules
from agentic_video.utils.proxies import ask_directly
from agentic_video.utils.ray_cluster import auth_mode, own_token
from agentic_video.utils.resources import cpu_limit
from agentic_video.utils.secrets import KEYS_FILE, forwarded, hand_keys

QUIET = {"VLLM_LOGGING_LEVEL": "WARN"}
"""As verl sets it for the processes that Ray starts; what is imported beforehand reads it already."""

PORT_TAKEN = b"EADDRINUSE"
"""What PyTorch's error says where its port was taken."""
TAIL_BYTES = 1 << 18
"""As much of a log's end is looked at."""


@dataclass(frozen=True)
class Job:
    """A training that is about to start.

    Attributes:
        options: What its command asks for.
        profile: The chosen one.
        config: Composed.
        environment: Environment variables of the command.
        folder: Gets the training's outputs, its log and its command.
        files: What its processes read: the model, rows, a video of each folder.
        total: Number of steps; 0 where it isn't known.
    """

    options: LaunchOptions
    profile: Profile
    config: DictConfig
    environment: Mapping[str, str]
    folder: Path
    files: tuple[str, ...] = ()
    total: int = 0


def process_variables(profile: Profile) -> dict[str, str]:
    """Environment variables of every process of a job, whatever the job."""
    return {**COMMON_ENV, **(LAPTOP_ENV if profile in ON_TOYWORLD else {}), "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def job_forks(
    options: LaunchOptions, profile: Profile, environment: Mapping[str, str], *, runs_here: bool
) -> Iterator[Forks | None]:
    """What forks a job's processes, where all of them run here.

    Args:
        options: Of the job.
        profile: The chosen one.
        environment: Environment variables of the command.
        runs_here: False for a dry run.

    Yields:
        The server; None where each process is started by itself.
    """
    if (
        runs_here
        and profile == "laptop"
        and options.stage == "grpo"
        and not on_ray_cluster(options.stage, environment)
        and environment.get(SWITCH) != "0"
    ):
        with fork_server({**environment, **process_variables(profile), **QUIET}) as forks:
            yield forks
    else:
        yield None


def train(job: Job, command: Sequence[str], verifier: str | None, forks: Forks | None = None) -> tuple[int, int]:
    """Run a training to its end.

    Args:
        command: See :func:`agentic_video.launch.stage.stage_command`.
        verifier: Checkpoint that is served as the verifier for as long as the training lasts.
        forks: Forks its processes; None: each is started by itself.

    Returns:
        Exit status, and peak memory in bytes (0 on a cluster, whose processes aren't this command's).

    Raises:
        SetupError: The Ray cluster that it is to run on can't take it.
    """
    stage, environment = job.options.stage, job.environment
    variables = {
        **process_variables(job.profile),
        "VERL_FILE_LOGGER_PATH": str(metrics_file(job.folder)),
        "TENSORBOARD_DIR": str(job.folder / "tensorboard"),
    }
    if own_modules(job.options.recipe):
        variables["PYTHONPATH"] = environment["PYTHONPATH"]  # for the processes on a cluster, too
    host = own_address() if on_ray_cluster(stage, environment) else "127.0.0.1"
    with clean_machine() as temporary, verifier_server(verifier, host) as served, _ray(job, temporary) as joining:
        whole = [*command, *served, *folder_overrides(stage, job.folder)]
        address = joining.get("RAY_ADDRESS", "")
        # Processes of a cluster don't see this machine's temporary folder.
        beside = joining or {"TMPDIR": str(temporary), **own_token(environment)}
        if address:
            keys = hand_keys(job.folder, environment, key_names(job.config))
            variables = {**forwarded(environment), **variables, **keys}
            cluster, counts = _on_cluster(job, joining, variables)
            ask_directly(variables, [node.address for node in cluster.nodes])
            whole += counts
        elif job.profile == "cluster" and stage == "grpo":
            whole += worker_overrides(1, cpu_limit(), job.options.overrides)
        if stage == "grpo":
            whole += scorer_overrides(job.config, job.options.overrides)
            whole += ray_overrides(address, variables, temporary)
        whole += handed_over(job.options.overrides, stage)
        elsewhere = checkpoints_folder(job.options.overrides, job.config)
        write_record(
            job.folder,
            # none where they are in the run's own folder, which may be moved
            **({"checkpoints": str(Path(elsewhere).absolute())} if elsewhere else {}),
            temporary=str(temporary),
            **({"forks": str(Path(forks.python).parent)} if forks else {}),
            segments=sorted(one.name for one in shared_segments()),
        )
        (job.folder / "command.sh").write_text(shlex.join(whole) + "\n", encoding="utf-8")
        wait = "a minute or two" if job.profile in ON_TOYWORLD else "some minutes (docs/gpu.md: what a start takes)"
        print(f"starting verl: the first step comes within {wait}", flush=True)
        try:
            status, peak = _run(whole, {**environment, **variables, **beside}, job, forks)
            # of the processes that this command started: a cluster's own aren't among them
            return status, 0 if on_ray_cluster(stage, environment) else peak
        finally:
            if forks:
                forks.stop()
            (job.folder / KEYS_FILE).unlink(missing_ok=True)


def _run(command: Sequence[str], environment: Mapping[str, str], job: Job, forks: Forks | None) -> tuple[int, int]:
    """Run verl to its end; once more where a port was taken that it had seen to be free seconds before."""
    log = job.folder / "log.txt"
    begins = log.stat().st_size if log.exists() else 0
    status, peak = run_verl([forks.python, *command[1:]] if forks else command, environment, log, job.total)
    if status == 1 and job.options.stage == "grpo" and port_taken(log, begins):
        print("another process took a port that verl had chosen: starting verl once more", flush=True)
        # without forks: what they have imported is of the first start's environment
        status, more = run_verl(command, environment, log, job.total)
        peak = max(peak, more)
    return status, peak


def port_taken(log: Path, begins: int) -> bool:
    """Whether the end of a log, if there is one, says that an address was in use.

    Args:
        begins: Bytes at its beginning that are an earlier start's.
    """
    if not log.exists():
        return False
    with log.open("rb") as file:
        file.seek(max(begins, os.fstat(file.fileno()).st_size - TAIL_BYTES))
        return PORT_TAKEN in file.read()


@contextlib.contextmanager
def _ray(job: Job, temporary: Path) -> Iterator[dict[str, str]]:
    """The variables by which a job joins its Ray cluster; none where verl starts one of its own.

    A rehearsal has several nodes on this machine, where no cluster is named.
    """
    if on_ray_cluster(job.options.stage, job.environment):
        # In a Ray job, the variables of its submission may be among those that the job's processes get: not a conflict.
        address = {"RAY_ADDRESS": job.environment["RAY_ADDRESS"], "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}
        yield {**address, **auth_mode(job.environment)}
    elif job.profile == "rehearsal":
        count = int(job.config.trainer.nnodes)
        print(f"starting {count} Ray nodes on this machine", flush=True)
        with ray_nodes(count, temporary, job.environment) as joining:
            yield joining
    else:
        yield {}


def _on_cluster(job: Job, joining: Mapping[str, str], variables: Mapping[str, str]) -> tuple[Cluster, list[str]]:
    """Look at the cluster, and fit the number of workers to its nodes."""
    token = job.folder / "seen-by-all"
    content = uuid4().hex
    token.write_text(content, encoding="utf-8")
    try:
        trainer = job.config.trainer
        # a model may be a name on a hub
        files = tuple(dict.fromkeys(os.path.abspath(one) for one in job.files if one[:1] == "/" or os.path.exists(one)))
        wanted = Wanted(
            trainer.nnodes, trainer.n_gpus_per_node, files, str(token), content, variables, gpus_beside(job.config)
        )
        cluster = check_cluster(joining["RAY_ADDRESS"], wanted, {**job.environment, **joining})
    finally:
        token.unlink(missing_ok=True)
    sizes = ", ".join(f"{node.address} ({node.cpus:g} CPUs, {node.gpus:g} GPUs)" for node in cluster.nodes)
    print(f"Ray cluster at {joining['RAY_ADDRESS']}: {sizes}", flush=True)
    if job.profile != "cluster":  # the others' yaml is written for machines of one size
        return cluster, []
    # a head without GPUs is often small: it says nothing about the machines that train
    cpus = min(node.cpus for node in cluster.nodes if node.gpus >= trainer.n_gpus_per_node)
    return cluster, worker_overrides(trainer.nnodes, cpus, job.options.overrides)
