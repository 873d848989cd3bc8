"""Train one system: GRPO, or a stage before it.

    agentic-video run videozoomer                         # GRPO
    agentic-video run videozoomer sft                     # supervised fine-tuning, the stage before
    agentic-video run recipes/videozoomer trainer.total_training_steps=40

Without a GPU: the small job, on a synthetic world with a tiny model, or on MODEL_PATH and TRAIN_FILES. With GPUs, or on
the Ray cluster at RAY_ADDRESS: the paper's run, which needs both. key=value arguments are Hydra overrides for verl.
"""

import argparse
from pathlib import Path
from typing import get_args

from agentic_video.commands.guard import guarded
from agentic_video.launch.options import ChangedData, LaunchOptions, Profile, Stage
from agentic_video.systems.registry import SYSTEMS
from agentic_video.utils.errors import SetupError

TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video run``."""
    stages = "|".join(get_args(Stage))
    parser.usage = f"agentic-video run [options] RECIPE [{stages}] [key=value ...]"
    example = next(iter(SYSTEMS))
    parser.add_argument("recipe", metavar="RECIPE", help=f"name of a recipe, e.g. {example}, or its folder")
    parser.add_argument(
        "--profile", choices=get_args(Profile), help="size of the job (default: laptop without GPUs, else cluster)"
    )
    parser.add_argument("--submit", action="store_true", help="submit as a Ray job to the cluster at RAY_ADDRESS")
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything, print the command, build and start nothing"
    )
    parser.add_argument(
        "--changed-data",
        choices=get_args(ChangedData),
        default="refuse",
        help="where the files of an unfinished run hold something else now: begin a new run, or continue from its last "
        "checkpoint with their first row (default: refuse)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Train.

    Args:
        arguments: What :func:`add_arguments` reads, and ``overrides``: maybe a stage, and Hydra overrides.

    Returns:
        Exit status: the training's, or 2 when it can't start.
    """
    return guarded(_run, arguments, models=False)


def _run(arguments: argparse.Namespace) -> int:
    from agentic_video.launch.main import launch

    return launch(options_of(arguments))


def options_of(arguments: argparse.Namespace) -> LaunchOptions:
    """What the arguments ask for.

    Raises:
        SetupError: There is no such recipe or stage, or a word is no override, or an option's.
    """
    from agentic_video.config.compose import recipe_at
    from agentic_video.config.overrides import check_overrides

    words = list(arguments.overrides)
    stage = next((word for word in words if word in get_args(Stage)), None)
    if stage is not None:
        words.remove(stage)
    check_overrides(words, f"a stage ({', '.join(get_args(Stage))}), an option")
    profile = next((word for word in words if word in {f"profile={name}" for name in get_args(Profile)}), "")
    if profile:
        raise SetupError(f"{profile}: a profile is an option, --{profile.replace('=', ' ')}")
    recipe: Path = recipe_at(arguments.recipe)
    return LaunchOptions(
        recipe=recipe,
        stage=stage or "grpo",
        profile=arguments.profile,
        submit=arguments.submit,
        dry_run=arguments.dry_run,
        overrides=tuple(words),
        changed_data=arguments.changed_data,
    )
