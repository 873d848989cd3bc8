"""What ``agentic-video run`` does: choose the profile, make what it needs, start verl, sum up.

The training itself is ``python -m verl.trainer.main_ppo`` (GRPO), or one of verl's torchrun trainers (the other
stages), with the recipe's yaml; this package only finds out where it runs, hands it paths and environment variables,
and cleans up behind it.
"""

import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from agentic_video.launch.checkpoint_owner import check_owner, forget_other_rows, owner_identity, sign
from agentic_video.launch.fork_server import Forks
from agentic_video.launch.handover import resolved_overrides
from agentic_video.launch.inputs import (
    Checked,
    Inputs,
    check_inputs,
    handed_over,
    input_overrides,
    named_inputs,
    require_there,
)
from agentic_video.launch.job import Job, job_forks, process_variables, train
from agentic_video.launch.machine import require_attention, require_engine
from agentic_video.launch.options import ON_TOYWORLD, LaunchOptions, Profile
from agentic_video.launch.profile import choose_profile, on_ray_cluster
from agentic_video.launch.run_folder import (
    check_content,
    launcher_alive,
    link_model,
    run_folder,
    run_identity,
    write_record,
)
from agentic_video.launch.stage import (
    checked_config,
    checkpoints_folder,
    machine_of,
    stage_command,
    total_steps,
    with_workers,
    world_size,
)
from agentic_video.launch.submit import submit_job
from agentic_video.launch.toyworld import build_toyworld, laptop_overrides
from agentic_video.planning.job import CPUS_OF_A_GPU
from agentic_video.planning.report import said_beside
from agentic_video.report.losses import newest_checkpoint, newest_step, write_losses
from agentic_video.report.summary import write_summary
from agentic_video.types.text import printable
from agentic_video.utils.devices import count_gpus
from agentic_video.utils.environment import file_in_the_way, output_folder
from agentic_video.utils.errors import SetupError, described, one_line
from agentic_video.utils.imports import check_working_folder, make_importable
from agentic_video.utils.ray_cluster import unanswered
from agentic_video.utils.resources import memory_limit
from agentic_video.utils.surroundings import check_vllm_variables
from agentic_video.utils.units import GIB

LAPTOP_BYTES = 5 * GIB
"""Memory of all processes of a laptop's job (docs/quickstart.md: 4.3 GiB at most in its runs)."""
FULL_BYTES = 64 << 20
"""A disk with less room than this counts as full."""


@dataclass(frozen=True)
class Start:
    """A job that can start, as far as looking tells: nothing of it is built yet.

    Attributes:
        options: What its command asks for.
        profile: The chosen one.
        environment: Environment variables of the command.
        config: Composed.
        inputs: The model and the data that are named.
        checked: What is known of them.
        command: That trains, without what is built and where it goes.
        root: Folder of the runs of its recipe, stage and profile.
        identity: What makes two commands the same run.
        machine: Which of several machines this is.
        shared: Folder of checkpoints that the user names; empty for the run's own.
        owner: The run whose checkpoints that folder may hold.
    """

    options: LaunchOptions
    profile: Profile
    environment: Mapping[str, str]
    config: DictConfig
    inputs: Inputs
    checked: Checked
    command: tuple[str, ...]
    root: Path
    identity: tuple[str, ...]
    machine: int
    shared: str
    owner: tuple[str, ...]


def launch(options: LaunchOptions) -> int:
    """Run a stage of a recipe, from the choice of its profile to its summary.

    Whatever can be wrong with the command, its config, its model and its data is looked at before anything is built.

    Returns:
        Exit status of the training, or of the submitted job.

    Raises:
        SetupError: It can't start.
    """
    check_working_folder(Path.cwd())
    make_importable(options.recipe)
    environment, gpus = {**os.environ}, count_gpus()
    runs_here = not options.dry_run and not options.submit
    profile = choose_profile(options.profile, gpus, environment, options.stage, runs_here=runs_here)
    if not options.submit:
        print(f"{options.title}: profile {profile}" + ("" if gpus else " (no GPU found)"), flush=True)
    began = time.monotonic()
    if not options.submit and not _elsewhere(options, profile, gpus, environment):
        require_there(named_inputs(options.stage, options.overrides, environment), options, profile)
    config, sizes = checked_config(options, profile, gpus, environment)
    if options.submit:
        return submit_job(options, profile, config, environment)

    start = _checked(options, profile, gpus, environment, config, sizes)
    with job_forks(options, profile, environment, runs_here=runs_here) as forks:
        paths = _build(start)
        command = _whole_command(start, paths)
        if options.dry_run:
            _say(start, command)
            return 0
        folder, status, peak_bytes = _train(start, command, paths, forks)
    checkpoint = newest_checkpoint(folder)
    if status:
        _say_failure(folder, status, config)
    if checkpoint:
        link_model(folder, checkpoint)
    if status:
        return status if status > 0 else 128 - status  # as shells say it
    _finish(start, folder, time.monotonic() - began, peak_bytes)
    return 0


def _elsewhere(options: LaunchOptions, profile: Profile, gpus: int, environment: Mapping[str, str]) -> bool:
    """Return True if other machines train, so that what isn't on this one may be there."""
    return profile not in ON_TOYWORLD and (not gpus or on_ray_cluster(options.stage, environment))


def _checked(
    options: LaunchOptions,
    profile: Profile,
    gpus: int,
    environment: Mapping[str, str],
    config: DictConfig,
    sizes: Sequence[str],
) -> Start:
    """The start of a job that runs here, or is only looked at."""
    if not options.dry_run:
        require_engine(options.stage, gpus)
        if gpus and profile not in ON_TOYWORLD and not on_ray_cluster(options.stage, environment):
            require_attention(config)
        if on_ray_cluster(options.stage, environment) and (problem := unanswered(environment["RAY_ADDRESS"])):
            raise SetupError(f"{problem}; unset RAY_ADDRESS to train on this machine alone")
        check_vllm_variables(environment, process_variables(profile))
        if profile in ON_TOYWORLD and memory_limit() < LAPTOP_BYTES:
            print(
                f"memory: {memory_limit() / GIB:.1f} GiB may be used here, and this job takes up to "
                f"{LAPTOP_BYTES / GIB:.0f} GiB: it may be killed on the way",
                file=sys.stderr,
            )
    inputs = named_inputs(options.stage, options.overrides, environment)
    elsewhere = _elsewhere(options, profile, gpus, environment)
    checked = check_inputs(inputs, options, profile, config, elsewhere=elsewhere)
    command = stage_command(options, profile, environment, config, sizes)
    identity = run_identity(options.overrides, environment, world_size(config, profile), inputs)
    shared, machine = checkpoints_folder(options.overrides, config), machine_of(options.stage, config, environment)
    root = output_folder(environment) / f"{options.title}-{profile}"
    if blocked := file_in_the_way(root):
        raise SetupError(f"{blocked}: a file, where a folder of outputs should be; set OUTPUT_DIR to another")
    owner = owner_identity(root.name, identity)
    check_owner(shared, owner, config.trainer.resume_mode, options.changed_data)
    check_content(root, identity, options.changed_data)
    if not options.dry_run:
        try:
            root.mkdir(parents=True, exist_ok=True)  # a folder that can't be written to is found out now
        except OSError as error:
            raise SetupError(f"{root} can't be made ({error.strerror}): set OUTPUT_DIR to a folder of yours") from error
    return Start(
        options,
        profile,
        environment,
        config,
        inputs,
        checked,
        tuple(command),
        root,
        tuple(identity),
        machine,
        shared,
        tuple(owner),
    )


def _build(start: Start) -> Mapping[str, str]:
    """Make what a job on the synthetic world lacks."""
    options, inputs = start.options, start.inputs
    if start.profile not in ON_TOYWORLD or (options.stage != "grpo" and inputs.train and inputs.model):
        return {}
    return build_toyworld(
        options.recipe,
        options.overrides,
        options.stage,
        data=not inputs.train,
        model="none" if inputs.model else "cold-start",
        dry_run=options.dry_run,
        config=start.config if options.stage == "grpo" else None,
    )


def _whole_command(start: Start, paths: Mapping[str, str]) -> list[str]:
    """The command that trains, with what was built, but for the run's folder and the user's overrides."""
    stage, inputs = start.options.stage, start.inputs
    command = [*start.command, *laptop_overrides(paths, stage)]
    if stage == "grpo":
        given = {text.partition("=")[0] for text in [*laptop_overrides(paths), *input_overrides(inputs, "grpo")]}
        command += resolved_overrides(start.config, given)
    return [*command, *input_overrides(inputs, stage), *start.checked.overrides]


def _say(start: Start, command: Sequence[str]) -> None:
    """Print a command that isn't run, and the plan of its job."""
    options, config = start.options, start.config
    print(shlex.join([*command, *handed_over(options.overrides, options.stage)]))
    if options.stage == "grpo" and start.profile not in ON_TOYWORLD:
        if start.profile == "cluster":
            cpus = CPUS_OF_A_GPU * config.trainer.n_gpus_per_node
            config = with_workers(config, config.trainer.nnodes, cpus, options.overrides)
        print(said_beside(config), file=sys.stderr)


def _train(
    start: Start, command: Sequence[str], paths: Mapping[str, str], forks: Forks | None
) -> tuple[Path, int, int]:
    """Train in a folder of the run's own, a new one or that of the same command's unfinished run."""
    inputs, checked, machine = start.inputs, start.checked, start.machine
    identity = [*start.identity, *([f"machine={machine}"] if machine else [])]
    folder, resumed = run_folder(start.root, identity, start.options.changed_data, start.shared)
    if start.options.changed_data == "continue":
        forget_other_rows(start.shared, start.owner)
    sign(start.shared, start.owner, finished=False)
    print(f"{'resuming' if resumed else 'run'} in {folder}", flush=True)
    files = (inputs.model, *inputs.train, *inputs.val, *paths.values(), *checked.videos)
    total = total_steps(start.config, checked.rows)
    job = Job(start.options, start.profile, start.config, start.environment, folder, files, total)
    with launcher_alive(folder):
        status, peak_bytes = train(job, command, paths.get("verifier"), forks)
    return folder, status, peak_bytes


def _say_failure(folder: Path, status: int, config: DictConfig) -> None:
    """Say how verl ended, and what the same command would do."""
    by = f" ({signal.Signals(-status).name})" if status < 0 else ""
    print(f"verl stopped with status {status}{by}; the whole log is {folder / 'log.txt'}", file=sys.stderr)
    if (free := shutil.disk_usage(folder).free) < FULL_BYTES:  # PyTorch's error doesn't say so
        print(f"{folder}: its disk is full ({free >> 20} MiB left); make room first", file=sys.stderr)
    if config.trainer.resume_mode == "disable":
        goes_on = "begins again: trainer.resume_mode=disable"
    elif newest_step(folder):
        goes_on = "goes on from the last checkpoint"
    else:
        goes_on = "begins again: no checkpoint is there yet"
    print(f"the same command {goes_on}", file=sys.stderr)


def _finish(start: Start, folder: Path, seconds: float, peak_bytes: int) -> None:
    """Note that a run has come to its end, and sum it up."""
    options = start.options
    write_record(
        folder,
        finished=True,
        recipe=options.recipe.name,
        profile=start.profile,
        seconds=seconds,
        peak_bytes=peak_bytes,
    )
    sign(start.shared, start.owner, finished=True)
    if start.machine:
        print(f"machine {start.machine} has ended; metrics and summary are on the one with NODE_RANK=0", flush=True)
        return
    try:
        print(write_summary(folder) if options.stage == "grpo" else write_losses(folder))
    except Exception as error:  # the run has finished, whatever its summary meets
        print(f"{folder}: the summary can't be written: {printable(one_line(described(error)))}", file=sys.stderr)
