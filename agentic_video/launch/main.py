"""What ``recipes/<system>/run_<stage>.sh`` runs: choose the profile, make what it needs, start verl, sum up.

The training itself is ``python -m verl.trainer.main_ppo`` (GRPO), or one of verl's torchrun trainers (the other
stages), with the recipe's yaml; this package only finds out where it runs, hands it paths and environment variables, and
cleans up behind it."""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agentic_video.launch.machine import clean_machine
from agentic_video.launch.process import run_verl
from agentic_video.launch.profile import LaunchError, choose_profile
from agentic_video.launch.run_folder import run_folder, run_identity, write_record
from agentic_video.launch.stage import TORCHRUN, ray_overrides, stage_command
from agentic_video.launch.toyworld import MODEL_KEYS, build_toyworld, laptop_overrides, verifier_server
from agentic_video.utils.devices import count_gpus
from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV, output_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a stage of a recipe.

    Returns:
        Exit status.
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
    bad = [text for text in overrides if "=" not in text and not text.startswith("~")]
    if bad:
        parser.error(f"not an option and not a Hydra override (key=value): {bad[0]}")
    try:
        return launch(known.recipe.resolve(), known.profile, known.submit, known.dry_run, overrides, known.stage)
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def launch(
    recipe: Path, asked: str | None, submit: bool, dry_run: bool, overrides: Sequence[str], stage: str = "grpo"
) -> int:
    """See :func:`main`."""
    environment = {**os.environ}
    gpus = count_gpus()
    profile = choose_profile(asked, gpus, environment, stage)
    if submit:
        if stage != "grpo":
            raise LaunchError(f"--submit is for GRPO's Ray job; {stage} runs under torchrun on the machine itself")
        from agentic_video.launch.submit import submit_job

        return submit_job(recipe, profile, overrides, environment, dry_run)

    title = recipe.name if stage == "grpo" else f"{recipe.name}-{stage}"
    print(f"{title}: profile {profile}" + ("" if gpus else " (no GPU found)"), flush=True)
    started = time.monotonic()
    root = output_folder(environment) / f"{title}-{profile}"
    variables = {**COMMON_ENV, **(LAPTOP_ENV if profile == "laptop" else {})}
    command = stage_command(stage, profile, recipe, gpus, environment, overrides)
    other_model = any(text.startswith(f"{MODEL_KEYS[stage]}=") for text in overrides)
    paths = build_toyworld(recipe, overrides, stage, cold_start=not other_model) if profile == "laptop" else {}
    if paths:
        command += laptop_overrides(paths, stage)
    if dry_run:
        print(shlex.join([*command, *overrides]))
        return 0

    if profile == "cluster" and not environment.get("RAY_ADDRESS"):  # this machine alone
        environment.setdefault("NNODES", "1")
        environment.setdefault("GPUS_PER_NODE", str(gpus))
    folder, resumed = run_folder(root, run_identity(overrides, environment))
    print(f"{'resuming' if resumed else 'run'} in {folder}", flush=True)
    attempt = len(list(folder.glob("metrics-*.jsonl"))) + 1
    variables_here = {
        **variables,
        "VERL_FILE_LOGGER_PATH": str(folder / f"metrics-{attempt:03d}.jsonl"),
        "TENSORBOARD_DIR": str(folder / "tensorboard"),
        "PYTHONUNBUFFERED": "1",
    }
    with clean_machine() as temporary, verifier_server(paths.get("verifier")) as verifier:
        command += [
            *verifier,
            f"hydra.run.dir={folder / 'hydra'}",
            f"trainer.default_local_dir={folder / 'checkpoints'}",
        ]
        if stage == "grpo":
            command.append(f"agentic_video.episodes_dir={folder / 'episodes'}")
            command += ray_overrides(environment, variables_here, temporary)
        command += overrides
        write_record(folder, temporary=str(temporary), started_at=time.time())
        (folder / "command.sh").write_text(shlex.join(command) + "\n", encoding="utf-8")
        print("starting verl: the first step comes after a minute or two of imports", flush=True)
        environment.update(variables_here)
        if stage != "grpo" or not environment.get("RAY_ADDRESS"):
            environment["TMPDIR"] = str(temporary)
        status, peak = run_verl(command, environment, folder / "log.txt")
    if status:
        print(f"verl stopped with status {status}; the whole log is {folder / 'log.txt'}", file=sys.stderr)
        print("the same command goes on from the last checkpoint", file=sys.stderr)
        return status
    seconds = time.monotonic() - started
    write_record(folder, finished=True, recipe=recipe.name, profile=profile, seconds=seconds, peak_bytes=peak)
    if stage == "grpo":
        from agentic_video.report.summary import write_summary

        print(write_summary(folder))
    else:
        from agentic_video.report.losses import write_losses

        print(write_losses(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
