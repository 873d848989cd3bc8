"""Which profile a command runs, and which of a recipe's yaml files that is."""

from collections.abc import Mapping

from agentic_video.config.compose import CHOICE
from agentic_video.launch.options import CHANGED, ON_TOYWORLD, Profile, Stage
from agentic_video.utils.errors import SetupError


def choose_profile(
    asked: Profile | None,
    gpus: int,
    environment: Mapping[str, str],
    stage: Stage = "grpo",
    *,
    runs_here: bool = True,
) -> Profile:
    """``laptop`` without GPUs, ``cluster`` with them (GRPO: or on a Ray cluster), unless one is asked for.

    Args:
        asked: The profile that the command names, if any.
        gpus: Number of GPUs of this machine.
        environment: Environment variables.
        stage: What is trained.
        runs_here: Whether it is to be started; False where its command is only printed.

    Raises:
        SetupError: The cluster profile lacks something to run on.
    """
    on_ray = on_ray_cluster(stage, environment)
    profile: Profile = asked or ("cluster" if gpus or on_ray else "laptop")
    if runs_here and on_ray and environment["RAY_ADDRESS"].startswith("http"):
        raise SetupError(
            f"RAY_ADDRESS={environment['RAY_ADDRESS']} is where jobs are submitted to (--submit); to run on the "
            "cluster from one of its nodes, name Ray's own address, e.g. RAY_ADDRESS=head-node:6379"
        )
    if stage != "grpo" and profile in CHANGED:
        raise SetupError(f"--profile {profile} is GRPO's; {stage} has laptop and cluster")
    if profile in ON_TOYWORLD:
        return profile
    if runs_here and not gpus and not on_ray:
        cluster = ", and RAY_ADDRESS names no cluster" if stage == "grpo" else ""
        raise SetupError(
            f"the {profile} profile needs GPUs: this machine has none (nvidia-smi lists none){cluster}. "
            "To run the small job without GPUs: --profile laptop"
        )
    return profile


def on_ray_cluster(stage: Stage, environment: Mapping[str, str]) -> bool:
    """Whether a stage runs on the Ray cluster that ``RAY_ADDRESS`` names; only GRPO's processes are Ray's."""
    return stage == "grpo" and bool(environment.get("RAY_ADDRESS"))


def config_name(stage: Stage, profile: Profile) -> str:
    """Name of a recipe's yaml file: GRPO's is the profile's, the other stages' are e.g. ``sft`` and ``sft_laptop``."""
    if stage == "grpo":
        return "cluster" if profile in CHANGED else profile
    return f"{stage}_laptop" if profile == "laptop" else stage


def changes(profile: Profile) -> list[str]:
    """The override by which a profile changes ``cluster.yaml``, if it does."""
    return [f"{CHOICE}{profile}"] if profile in CHANGED else []
