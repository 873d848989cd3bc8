"""What ``agentic-video run`` does: choose the profile, make what it needs, start verl, sum up.

The training itself is ``python -m verl.trainer.main_ppo`` (GRPO), or one of verl's torchrun trainers (the other
stages), with the recipe's yaml; this package only finds out where it runs, hands it paths and environment variables,
and cleans up behind it.
"""

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentic_video.launch.inputs import check_inputs, input_overrides, named_inputs
from agentic_video.launch.machine import clean_machine, require_engine
from agentic_video.launch.options import LaunchOptions, Profile
from agentic_video.launch.process import run_verl
from agentic_video.launch.profile import choose_profile
from agentic_video.launch.run_folder import link_model, metrics_file, run_folder, run_identity, write_record
from agentic_video.launch.stage import checked_config, folder_overrides, ray_overrides, stage_command, total_steps
from agentic_video.launch.submit import submit_job
from agentic_video.launch.toyworld import build_toyworld, laptop_overrides, verifier_server
from agentic_video.report.losses import newest_checkpoint, write_losses
from agentic_video.report.summary import write_summary
from agentic_video.utils.devices import count_gpus
from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV, output_folder
from agentic_video.utils.imports import make_importable, own_modules


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
        return submit_job(options, profile, environment)

    if runs_here:
        require_engine(options.stage, gpus)
    inputs = named_inputs(options.stage, options.overrides, environment)
    elsewhere = profile == "cluster" and (
        not gpus or (options.stage == "grpo" and bool(environment.get("RAY_ADDRESS")))
    )
    checked = check_inputs(inputs, options, profile, config, elsewhere=elsewhere)
    command = stage_command(options, profile, gpus, environment, config)
    root = output_folder(environment) / f"{options.title}-{profile}"
    if runs_here:
        root.mkdir(parents=True, exist_ok=True)  # a folder that can't be written to is found out now
    paths: Mapping[str, str] = {}
    if profile == "laptop":
        if options.stage == "grpo" or not (inputs.train and inputs.model):
            paths = build_toyworld(
                options.recipe,
                options.overrides,
                options.stage,
                data=not inputs.train,
                model="none" if inputs.model else "cold-start",
                dry_run=options.dry_run,
            )
        command += [*laptop_overrides(paths, options.stage), *input_overrides(inputs, options.stage)]
    command += checked.overrides
    if options.dry_run:
        print(shlex.join([*command, *options.overrides]))
        return 0

    if profile == "cluster" and not environment.get("RAY_ADDRESS"):  # this machine alone
        environment.setdefault("NNODES", "1")
        environment.setdefault("GPUS_PER_NODE", str(gpus))
    folder, resumed = run_folder(root, run_identity(options.overrides, environment))
    print(f"{'resuming' if resumed else 'run'} in {folder}", flush=True)
    total = total_steps(config, checked.rows)
    status, peak_bytes = _train(options, profile, command, environment, folder, paths.get("verifier"), total)
    checkpoint = newest_checkpoint(folder)
    if status:
        print(f"verl stopped with status {status}; the whole log is {folder / 'log.txt'}", file=sys.stderr)
        goes_on = "goes on from the last checkpoint" if checkpoint else "begins again: no checkpoint was written yet"
        print(f"the same command {goes_on}", file=sys.stderr)
        return status
    if checkpoint:
        link_model(folder, checkpoint)
    seconds = time.monotonic() - started
    write_record(
        folder, finished=True, recipe=options.recipe.name, profile=profile, seconds=seconds, peak_bytes=peak_bytes
    )
    print(write_summary(folder) if options.stage == "grpo" else write_losses(folder))
    return 0


def _train(
    options: LaunchOptions,
    profile: Profile,
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    verifier: str | None,
    total: int,
) -> tuple[int, int]:
    """Run the training in a run's folder, with what it needs beside it.

    Args:
        command: See :func:`agentic_video.launch.stage.stage_command`.
        environment: Environment variables of this command.
        folder: Gets the training's outputs, its log and its command.
        verifier: Checkpoint that is served as the verifier for as long as the training lasts.
        total: Number of steps; 0 where it isn't known.

    Returns:
        Exit status and peak memory in bytes.
    """
    variables = {
        **COMMON_ENV,
        **(LAPTOP_ENV if profile == "laptop" else {}),
        "VERL_FILE_LOGGER_PATH": str(metrics_file(folder)),
        "TENSORBOARD_DIR": str(folder / "tensorboard"),
        "PYTHONUNBUFFERED": "1",
    }
    if own_modules(options.recipe):
        variables["PYTHONPATH"] = environment["PYTHONPATH"]  # for the processes on a cluster, too
    with clean_machine() as temporary, verifier_server(verifier) as served:
        whole = [*command, *served, *folder_overrides(options.stage, folder)]
        if options.stage == "grpo":
            whole += ray_overrides(environment, variables, temporary)
        whole += options.overrides
        write_record(folder, temporary=str(temporary), started_at=time.time())
        (folder / "command.sh").write_text(shlex.join(whole) + "\n", encoding="utf-8")
        print("starting verl: the first step comes after a minute or two of imports", flush=True)
        on_cluster = options.stage == "grpo" and environment.get("RAY_ADDRESS")
        # Processes of a cluster don't see this machine's temporary folder.
        beside = {} if on_cluster else {"TMPDIR": str(temporary)}
        return run_verl(whole, {**environment, **variables, **beside}, folder / "log.txt", total)
