"""Train one system: GRPO, or a stage before it.

    agentic-video run videozoomer                         # GRPO
    agentic-video run videozoomer sft                     # supervised fine-tuning, the stage before
    agentic-video run recipes/videozoomer trainer.total_training_steps=40

Without a GPU: the small job, on a synthetic world with a tiny model, or on MODEL_PATH and TRAIN_FILES. With GPUs, or on
the Ray cluster at RAY_ADDRESS: the paper's run, which needs both. A second word is the stage: grpo, sft, kto or rft.
key=value arguments are Hydra overrides for verl.
"""

from dataclasses import dataclass
from typing import get_args

from tyro.conf import Positional

from agentic_video.commands.guard import guarded
from agentic_video.launch.options import ChangedData, LaunchOptions, Profile, Stage
from agentic_video.utils.errors import SetupError
from agentic_video.utils.option_types import Overrides


@dataclass(frozen=True)
class RunArguments:
    """A training job."""

    recipe: Positional[str]
    """name of a recipe, or its folder"""
    profile: Profile | None = None
    """size of the job (default: laptop without GPUs, else cluster)"""
    submit: bool = False
    """submit as a Ray job to the cluster at RAY_ADDRESS"""
    dry_run: bool = False
    """check everything, print the command, build and start nothing"""
    changed_data: ChangedData = "refuse"
    """where the files of an unfinished run hold something else now: begin a new run, or continue from its last
    checkpoint with their first row"""
    overrides: Overrides = ()


def run(options: RunArguments) -> int:
    """Train; returns the training's exit status, or 2 when it can't start."""
    return guarded(lambda: _run(options), models=False)


def _run(options: RunArguments) -> int:
    from agentic_video.launch.main import launch

    return launch(launch_options(options))


def launch_options(options: RunArguments) -> LaunchOptions:
    """Find the recipe, and tell the stage from the overrides."""
    from agentic_video.config.compose import recipe_at
    from agentic_video.config.overrides import check_overrides

    words = list(options.overrides)
    stage: Stage = next((name for name in get_args(Stage) if name in words), "grpo")
    if stage in words:
        words.remove(stage)
    check_overrides(words, f"a stage ({', '.join(get_args(Stage))}), an option")
    if profile := next((word for word in words if word in {f"profile={name}" for name in get_args(Profile)}), ""):
        raise SetupError(f"{profile}: a profile is an option, --{profile.replace('=', ' ')}", key="--profile")
    return LaunchOptions(
        recipe=recipe_at(options.recipe),
        stage=stage,
        profile=options.profile,
        submit=options.submit,
        dry_run=options.dry_run,
        overrides=tuple(words),
        changed_data=options.changed_data,
    )
