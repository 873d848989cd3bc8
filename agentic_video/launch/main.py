"""``agentic-video run``: choose the profile, check everything, build what is missing, start verl, sum up.

The training itself is ``python -m verl.trainer.main_ppo`` (GRPO), or one of verl's torchrun trainers (the other
stages), with the recipe's yaml; the launcher finds out where it runs, hands it paths and environment variables, and
cleans up behind it.
"""

import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig

from agentic_video.launch.inputs import (
    CheckedData,
    Inputs,
    absolutize_overrides,
    check_inputs,
    input_overrides,
    named_inputs,
    require_present,
)
from agentic_video.launch.job import TrainingJob, job_forks, process_variables, train
from agentic_video.launch.laptop_fork.server import Forks
from agentic_video.launch.options import ON_TOYWORLD, LaunchOptions, Profile, choose_profile, on_ray_cluster
from agentic_video.launch.run_folder import (
    check_content,
    check_owner,
    forget_other_rows,
    launcher_alive,
    link_model,
    owner_identity,
    run_folder,
    run_identity,
    sign,
    write_record,
)
from agentic_video.launch.stage import (
    checked_config,
    checkpoints_folder,
    machine_of,
    require_attention,
    require_engine,
    resolved_overrides,
    stage_command,
    with_workers,
    world_size,
)
from agentic_video.launch.submit import submit_job
from agentic_video.launch.toyworld import build_toyworld, laptop_overrides
from agentic_video.planning.job import CPUS_OF_A_GPU
from agentic_video.planning.report import plan_summary
from agentic_video.report.losses import newest_checkpoint, newest_step, write_losses
from agentic_video.report.summary import write_summary
from agentic_video.types.text import printable
from agentic_video.utils.environment import file_in_the_way, output_folder
from agentic_video.utils.errors import SetupError, described, one_line
from agentic_video.utils.host import count_gpus, memory_limit
from agentic_video.utils.imports import check_working_folder, make_importable
from agentic_video.utils.ray_cluster import unanswered
from agentic_video.utils.surroundings import check_vllm_variables
from agentic_video.utils.units import GIB

LAPTOP_BYTES = 5 * GIB
"""Memory of all processes of a laptop's job (docs/quickstart.md: 4.3 GiB at most in its runs)."""
FULL_BYTES = 64 << 20
"""A disk with less room than this counts as full."""


def launch(options: LaunchOptions) -> int:
    """Run a stage of a recipe, from the choice of its profile to its summary; return the exit status."""
    check_working_folder(Path.cwd())
    make_importable(options.recipe)
    environment, gpus = {**os.environ}, count_gpus()
    profile = choose_profile(options.profile, gpus, environment, options.stage, runs_here=options.runs_here)
    if options.submit:
        config, _ = checked_config(options, profile, gpus, environment)
        return submit_job(options, profile, config, environment)
    print(f"{options.title}: profile {profile}" + ("" if gpus else " (no GPU found)"), flush=True)
    start = time.monotonic()
    inputs = named_inputs(options.stage, options.overrides, environment)
    # other machines, where they train, may have files that are missing here
    elsewhere = profile not in ON_TOYWORLD and (not gpus or on_ray_cluster(options.stage, environment))
    require_present(inputs, options, profile, elsewhere=elsewhere)
    config, sizes = checked_config(options, profile, gpus, environment)
    if not options.dry_run:
        _check_machine(options, profile, gpus, environment, config)
    data = check_inputs(inputs, options, profile, config, elsewhere=elsewhere)
    job = _checked_job(options, profile, environment, config, sizes, inputs, data)

    with job_forks(options, profile, environment) as forks:  # imports while the toy world is built
        built = _build(job)
        command = _complete_command(job, built)
        if options.dry_run:
            _print_command(job, command)
            return 0
        folder, status, peak_bytes = _train(job, command, built, forks)
    if checkpoint := newest_checkpoint(folder):
        link_model(folder, checkpoint)
    if status:
        _report_failure(folder, status, config)
        return status if status > 0 else 128 - status  # as shells have it
    _finish(job, folder, time.monotonic() - start, peak_bytes)
    return 0


def _check_machine(
    options: LaunchOptions, profile: Profile, gpus: int, environment: Mapping[str, str], config: DictConfig
) -> None:
    """Check that this machine, or the cluster, can train."""
    on_ray = on_ray_cluster(options.stage, environment)
    require_engine(options.stage, gpus)
    if gpus and profile not in ON_TOYWORLD and not on_ray:
        require_attention(config)
    if on_ray and (problem := unanswered(environment["RAY_ADDRESS"])):
        raise SetupError(f"{problem}; unset RAY_ADDRESS to train on this machine alone", key="RAY_ADDRESS")
    check_vllm_variables(environment, process_variables(profile))
    if profile in ON_TOYWORLD and (limit := memory_limit()) < LAPTOP_BYTES:
        print(
            f"memory: {limit / GIB:.1f} GiB may be used here, and this job takes up to {LAPTOP_BYTES / GIB:.0f} GiB: "
            "it may be killed on the way",
            file=sys.stderr,
        )


def _checked_job(
    options: LaunchOptions,
    profile: Profile,
    environment: Mapping[str, str],
    config: DictConfig,
    sizes: Sequence[str],
    inputs: Inputs,
    data: CheckedData,
) -> TrainingJob:
    """Check the folders that a job writes to."""
    identity = run_identity(options.overrides, environment, world_size(config, profile), inputs)
    root = output_folder(environment) / f"{options.title}-{profile}"
    if blocked := file_in_the_way(root):
        raise SetupError(
            f"{blocked}: a file, where a folder of outputs should be; set OUTPUT_DIR to another", key="OUTPUT_DIR"
        )
    job = TrainingJob(
        options=options,
        profile=profile,
        environment=environment,
        config=config,
        inputs=inputs,
        data=data,
        command=stage_command(options, profile, environment, config, sizes),
        root=root,
        identity=identity,
        machine=machine_of(options.stage, config, environment),
        checkpoints=checkpoints_folder(options.overrides, config),
        owner=owner_identity(root.name, identity),
    )
    check_owner(job.checkpoints, job.owner, config.trainer.resume_mode, options.changed_data)
    check_content(root, identity, options.changed_data)
    if not options.dry_run:
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SetupError(
                f"{root} can't be made ({error.strerror}): set OUTPUT_DIR to a folder of yours", key="OUTPUT_DIR"
            ) from error
    return job


def _build(job: TrainingJob) -> Mapping[str, str]:
    """Build what a job on the synthetic world lacks."""
    options, inputs = job.options, job.inputs
    if job.profile not in ON_TOYWORLD or (options.stage != "grpo" and inputs.train and inputs.model):
        return {}
    return build_toyworld(
        options.recipe,
        options.overrides,
        options.stage,
        data=not inputs.train,
        model="none" if inputs.model else "cold-start",
        dry_run=options.dry_run,
        config=job.config if options.stage == "grpo" else None,
    )


def _complete_command(job: TrainingJob, built: Mapping[str, str]) -> list[str]:
    """The command that trains, with what was built, but for the run's folder and the user's overrides."""
    stage = job.options.stage
    built_overrides, named_overrides = laptop_overrides(built, stage), input_overrides(job.inputs, stage)
    resolved: list[str] = []
    if stage == "grpo":
        given = {text.partition("=")[0] for text in [*built_overrides, *named_overrides]}
        resolved = resolved_overrides(job.config, given)
    return [*job.command, *built_overrides, *resolved, *named_overrides, *job.data.overrides]


def _print_command(job: TrainingJob, command: Sequence[str]) -> None:
    """Print a command that isn't run, and the plan of its job."""
    options, config = job.options, job.config
    print(shlex.join([*command, *absolutize_overrides(options.overrides, options.stage)]))
    if options.stage == "grpo" and job.profile not in ON_TOYWORLD:
        if job.profile == "cluster":
            cpus = CPUS_OF_A_GPU * config.trainer.n_gpus_per_node
            config = with_workers(config, config.trainer.nnodes, cpus, options.overrides)
        print(plan_summary(config), file=sys.stderr)


def _train(
    job: TrainingJob, command: Sequence[str], built: Mapping[str, str], forks: Forks | None
) -> tuple[Path, int, int]:
    """Claim a folder, a new one or that of the same command's unfinished run, and train in it."""
    changed_data = job.options.changed_data
    identity = [*job.identity, *([f"machine={job.machine}"] if job.machine else [])]
    folder, resumed = run_folder(job.root, identity, changed_data, job.checkpoints)
    if changed_data == "continue":
        forget_other_rows(job.checkpoints, job.owner)
    sign(job.checkpoints, job.owner, finished=False)
    print(f"{'resuming' if resumed else 'run'} in {folder}", flush=True)
    with launcher_alive(folder):
        status, peak_bytes = train(job, folder, command, built, forks)
    return folder, status, peak_bytes


def _report_failure(folder: Path, status: int, config: DictConfig) -> None:
    """Print how verl ended, and what the same command would do."""
    by = f" ({signal.Signals(-status).name})" if status < 0 else ""
    print(f"verl stopped with status {status}{by}; the whole log is {folder / 'log.txt'}", file=sys.stderr)
    if (free := shutil.disk_usage(folder).free) < FULL_BYTES:  # PyTorch's error doesn't mention it
        print(f"{folder}: its disk is full ({free >> 20} MiB left); make room first", file=sys.stderr)
    if config.trainer.resume_mode == "disable":
        effect = "begins again: trainer.resume_mode=disable"
    elif newest_step(folder):
        effect = "resumes from the last checkpoint"
    else:
        effect = "begins again: no checkpoint is there yet"
    print(f"the same command {effect}", file=sys.stderr)


def _finish(job: TrainingJob, folder: Path, seconds: float, peak_bytes: int) -> None:
    """Record that a run has finished, and sum it up."""
    write_record(
        folder,
        finished=True,
        recipe=job.options.recipe.name,
        profile=job.profile,
        seconds=seconds,
        peak_bytes=peak_bytes,
    )
    sign(job.checkpoints, job.owner, finished=True)
    if job.machine:
        print(f"machine {job.machine} has ended; metrics and summary are on the one with NODE_RANK=0", flush=True)
        return
    try:
        print(write_summary(folder) if job.options.stage == "grpo" else write_losses(folder))
    except Exception as error:  # the run has finished, whatever its summary meets
        print(f"{folder}: the summary can't be written: {printable(one_line(described(error)))}", file=sys.stderr)
