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
from collections.abc import Mapping

from agentic_video.launch.checkpoint_owner import check_owner, owner_identity, sign
from agentic_video.launch.handover import resolved_overrides
from agentic_video.launch.inputs import check_inputs, handed_over, input_overrides, named_inputs
from agentic_video.launch.job import Job, job_forks, train
from agentic_video.launch.machine import require_engine
from agentic_video.launch.options import ON_TOYWORLD, LaunchOptions
from agentic_video.launch.profile import choose_profile, on_ray_cluster
from agentic_video.launch.run_folder import launcher_alive, link_model, run_folder, run_identity, write_record
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
from agentic_video.utils.devices import count_gpus
from agentic_video.utils.environment import output_folder
from agentic_video.utils.imports import make_importable

FULL_BYTES = 64 << 20
"""A disk with less room than this counts as full."""


def launch(options: LaunchOptions) -> int:
    """Run a stage of a recipe, from the choice of its profile to its summary.

    Whatever can be wrong with the command, its config, its model and its data is looked at before anything is built.

    Returns:
        Exit status of the training, or of the submitted job.

    Raises:
        SetupError: It can't start.
    """
    make_importable(options.recipe)
    environment, gpus = {**os.environ}, count_gpus()
    runs_here = not options.dry_run and not options.submit
    profile = choose_profile(options.profile, gpus, environment, options.stage, runs_here=runs_here)
    if not options.submit:
        print(f"{options.title}: profile {profile}" + ("" if gpus else " (no GPU found)"), flush=True)
    started = time.monotonic()
    config = checked_config(options, profile, gpus, environment)
    if options.submit:
        return submit_job(options, profile, config, environment)

    if runs_here:
        require_engine(options.stage, gpus)
    inputs = named_inputs(options.stage, options.overrides, environment)
    elsewhere = profile not in ON_TOYWORLD and (not gpus or on_ray_cluster(options.stage, environment))
    checked = check_inputs(inputs, options, profile, config, elsewhere=elsewhere)
    command = stage_command(options, profile, gpus, environment, config)
    identity = run_identity(options.overrides, environment, world_size(config, profile))
    shared, machine = checkpoints_folder(options.overrides, config), machine_of(options.stage, config, environment)
    root = output_folder(environment) / f"{options.title}-{profile}"
    owner = owner_identity(root.name, identity)
    check_owner(shared, owner, config.trainer.resume_mode)
    if runs_here:
        root.mkdir(parents=True, exist_ok=True)  # a folder that can't be written to is found out now
    with job_forks(options, profile, environment, runs_here=runs_here) as forks:
        paths: Mapping[str, str] = {}
        if profile in ON_TOYWORLD:
            if options.stage == "grpo" or not (inputs.train and inputs.model):
                paths = build_toyworld(
                    options.recipe,
                    options.overrides,
                    options.stage,
                    data=not inputs.train,
                    model="none" if inputs.model else "cold-start",
                    dry_run=options.dry_run,
                    config=config if options.stage == "grpo" else None,
                )
            command += laptop_overrides(paths, options.stage)
        if options.stage == "grpo":
            given = {text.partition("=")[0] for text in [*laptop_overrides(paths), *input_overrides(inputs, "grpo")]}
            command += resolved_overrides(config, given)
        command += [*input_overrides(inputs, options.stage), *checked.overrides]
        if options.dry_run:
            print(shlex.join([*command, *handed_over(options.overrides, options.stage)]))
            if options.stage == "grpo" and profile not in ON_TOYWORLD:
                if profile == "cluster":
                    cpus = CPUS_OF_A_GPU * config.trainer.n_gpus_per_node
                    config = with_workers(config, config.trainer.nnodes, cpus, options.overrides)
                print(said_beside(config), file=sys.stderr)
            return 0

        folder, resumed = run_folder(root, [*identity, *([f"machine={machine}"] if machine else [])])
        sign(shared, owner, finished=False)
        print(f"{'resuming' if resumed else 'run'} in {folder}", flush=True)
        files = [inputs.model, *inputs.train, *inputs.val, *paths.values(), *checked.videos]
        job = Job(options, profile, config, environment, folder, tuple(files), total_steps(config, checked.rows))
        with launcher_alive(folder):
            status, peak_bytes = train(job, command, paths.get("verifier"), forks)
    checkpoint = newest_checkpoint(folder)
    if status:
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
    if checkpoint:
        link_model(folder, checkpoint)
    if status:
        return status if status > 0 else 128 - status  # as shells say it
    seconds = time.monotonic() - started
    write_record(
        folder, finished=True, recipe=options.recipe.name, profile=profile, seconds=seconds, peak_bytes=peak_bytes
    )
    sign(shared, owner, finished=True)
    if machine:
        print(f"machine {machine} has ended; metrics and summary are on the one with NODE_RANK=0", flush=True)
    else:
        print(write_summary(folder) if options.stage == "grpo" else write_losses(folder))
    return 0
