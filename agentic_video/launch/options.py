"""Options of a training job: its stage, and its profile, which says which of a recipe's yaml files it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentic_video.config.compose import CHOICE
from agentic_video.utils.errors import SetupError

Stage = Literal["grpo", "sft", "kto", "rft"]
"""``rft``: SFT once more, after GRPO, with its own good rollouts."""
Profile = Literal["laptop", "cluster", "rehearsal", "single", "four"]
"""``laptop``: a small job on the synthetic world, on CPUs. ``cluster``: the paper's run, on GPUs. The others are the
cluster's with a few changes: ``rehearsal`` on CPUs and two Ray nodes, on the synthetic world; ``single`` on one GPU;
``four`` on four."""
ChangedData = Literal["refuse", "new", "continue"]
"""Fate of an unfinished run whose files have changed: refused, left for a new run, or resumed from its last checkpoint
with the first row of the new content."""
CHANGED: frozenset[Profile] = frozenset({"rehearsal", "single", "four"})
"""The profiles that are ``cluster.yaml`` with the changes of ``profile/<name>.yaml``."""
ON_TOYWORLD: frozenset[Profile] = frozenset({"laptop", "rehearsal"})
"""The profiles whose data and model are made on the spot where none are named, and which need no GPU."""


@dataclass(frozen=True)
class LaunchOptions:
    """One training job; ``agentic_video/commands/run.py`` has the help of its fields."""

    recipe: Path
    stage: Stage = "grpo"
    profile: Profile | None = None
    submit: bool = False
    dry_run: bool = False
    overrides: tuple[str, ...] = ()
    changed_data: ChangedData = "refuse"

    @property
    def title(self) -> str:
        """The recipe, and the stage where it isn't GRPO; run folders begin with it."""
        return self.recipe.name if self.stage == "grpo" else f"{self.recipe.name}-{self.stage}"

    @property
    def runs_here(self) -> bool:
        """Return True if this command trains, rather than prints or submits."""
        return not self.dry_run and not self.submit


def choose_profile(
    requested: Profile | None,
    gpus: int,
    environment: Mapping[str, str],
    stage: Stage = "grpo",
    *,
    runs_here: bool = True,
) -> Profile:
    """Choose ``laptop`` without GPUs, ``cluster`` with them (GRPO: or on a Ray cluster), unless one is requested.

    ``runs_here`` is False where the command is only printed or submitted.
    """
    on_ray = on_ray_cluster(stage, environment)
    profile: Profile = requested or ("cluster" if gpus or on_ray else "laptop")
    if runs_here and on_ray and environment["RAY_ADDRESS"].startswith("http"):
        raise SetupError(
            f"RAY_ADDRESS={environment['RAY_ADDRESS']} is where jobs are submitted to (--submit); to run on the "
            "cluster from one of its nodes, name Ray's own address, e.g. RAY_ADDRESS=head-node:6379",
            key="RAY_ADDRESS",
        )
    if stage != "grpo" and profile in CHANGED:
        raise SetupError(f"--profile {profile} is GRPO's; {stage} has laptop and cluster", key="--profile")
    if profile not in ON_TOYWORLD and runs_here and not gpus and not on_ray:
        cluster = ", and RAY_ADDRESS names no cluster" if stage == "grpo" else ""
        raise SetupError(
            f"the {profile} profile needs GPUs: this machine has none (nvidia-smi lists none){cluster}. "
            "To run the small job without GPUs: --profile laptop",
            key="--profile",
        )
    return profile


def on_ray_cluster(stage: Stage, environment: Mapping[str, str]) -> bool:
    """Return True if a stage runs on the Ray cluster at ``RAY_ADDRESS``; only GRPO's processes are Ray's."""
    return stage == "grpo" and bool(environment.get("RAY_ADDRESS"))


def config_name(stage: Stage, profile: Profile) -> str:
    """Name of a recipe's yaml file: GRPO's is the profile's, the other stages' are e.g. ``sft`` and ``sft_laptop``."""
    if stage == "grpo":
        return "cluster" if profile in CHANGED else profile
    return f"{stage}_laptop" if profile == "laptop" else stage


def changes(profile: Profile) -> list[str]:
    """The override by which a profile changes ``cluster.yaml``, if it does."""
    return [f"{CHOICE}{profile}"] if profile in CHANGED else []
