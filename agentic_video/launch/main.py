"""What ``recipes/<system>/run_<stage>.sh`` runs: choose the profile, make what it needs, start verl, sum up.

The training itself is ``python -m verl.trainer.main_ppo`` (GRPO), or one of verl's torchrun trainers (the other
stages), with the recipe's yaml; this package only finds out where it runs, hands it paths and environment variables,
and cleans up behind it.
"""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentic_video.config.compose import check_overrides
from agentic_video.launch.machine import clean_machine
from agentic_video.launch.options import LaunchOptions, Profile
from agentic_video.launch.process import run_verl
from agentic_video.launch.profile import choose_profile
from agentic_video.launch.run_folder import metrics_file, run_folder, run_identity, write_record
from agentic_video.launch.stage import TORCHRUN, folder_overrides, ray_overrides, stage_command
from agentic_video.launch.submit import submit_job
from agentic_video.launch.toyworld import MODEL_KEYS, build_toyworld, laptop_overrides, verifier_server
from agentic_video.report.losses import write_losses
from agentic_video.report.summary import write_summary
from agentic_video.utils.devices import count_gpus
from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV, output_folder
from agentic_video.utils.errors import SetupError
from agentic_video.utils.imports import make_importable, own_modules


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line of the recipes' training scripts.

    Returns:
        Exit status: the training's, or 2 when it can't start.
    """
    parser = argparse.ArgumentParser(
        prog="run_grpo.sh, run_sft.sh, run_kto.sh",
        description="Trains one system. Everything else on the command line is a Hydra override for verl.",
    )
    parser.add_argument("recipe", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--stage", choices=("grpo", *TORCHRUN), default="grpo", help=argparse.SUPPRESS)
    parser.add_argument("--profile", choices=("laptop", "cluster"), help="default: laptop without GPUs")
    parser.add_argument("--submit", action="store_true", help="submit as a Ray job to the cluster at RAY_ADDRESS")
    parser.add_argument("--dry-run", action="store_true", help="print the command and stop")
    known, overrides = parser.parse_known_args(arguments)
    try:
        check_overrides(overrides)
    except SetupError as error:
        parser.error(str(error))
    options = LaunchOptions(
        known.recipe.resolve(), known.stage, known.profile, known.submit, known.dry_run, tuple(overrides)
    )
    try:
        return launch(options)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def launch(options: LaunchOptions) -> int:
    """Run a stage of a recipe, from the choice of its profile to its summary.

    Returns:
        Exit status of the training, or of the submitted job.

    Raises:
        SetupError: It can't start.
    """
    make_importable(options.recipe)
    environment, gpus = {**os.environ}, count_gpus()
    profile = choose_profile(options.profile, gpus, environment, options.stage)
    if options.submit:
        return submit_job(options, profile, environment)

    print(f"{options.title}: profile {profile}" + ("" if gpus else " (no GPU found)"), flush=True)
    started = time.monotonic()
    command = stage_command(options, profile, gpus, environment)
    paths: Mapping[str, str] = {}
    if profile == "laptop":
        named = any(text.startswith(f"{MODEL_KEYS[options.stage]}=") for text in options.overrides)
        paths = build_toyworld(options.recipe, options.overrides, options.stage, cold_start=not named)
        command += laptop_overrides(paths, options.stage)
    if options.dry_run:
        print(shlex.join([*command, *options.overrides]))
        return 0

    if profile == "cluster" and not environment.get("RAY_ADDRESS"):  # this machine alone
        environment.setdefault("NNODES", "1")
        environment.setdefault("GPUS_PER_NODE", str(gpus))
    root = output_folder(environment) / f"{options.title}-{profile}"
    folder, resumed = run_folder(root, run_identity(options.overrides, environment))
    print(f"{'resuming' if resumed else 'run'} in {folder}", flush=True)
    status, peak_bytes = _train(options, profile, command, environment, folder, paths.get("verifier"))
    if status:
        print(f"verl stopped with status {status}; the whole log is {folder / 'log.txt'}", file=sys.stderr)
        print("the same command goes on from the last checkpoint", file=sys.stderr)
        return status
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
) -> tuple[int, int]:
    """Run the training in a run's folder, with what it needs beside it.

    Args:
        command: See :func:`agentic_video.launch.stage.stage_command`.
        environment: Environment variables of this command.
        folder: Gets the training's outputs, its log and its command.
        verifier: Checkpoint that is served as the verifier for as long as the training lasts.

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
        return run_verl(whole, {**environment, **variables, **beside}, folder / "log.txt")


if __name__ == "__main__":
    sys.exit(main())
