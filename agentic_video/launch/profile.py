"""Which profile a command runs, and which of a recipe's yaml files that is."""

from collections.abc import Mapping

from agentic_video.launch.options import Profile, Stage
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
        stage: What is trained; says what its data must be.
        runs_here: Whether it is to be started; False where its command is only printed.

    Raises:
        SetupError: The cluster profile lacks a model, data, or something to run on.
    """
    on_ray = stage == "grpo" and bool(environment.get("RAY_ADDRESS"))
    profile: Profile = asked or ("cluster" if gpus or on_ray else "laptop")
    if profile == "laptop":
        return profile
    if missing := [name for name in ("MODEL_PATH", "TRAIN_FILES") if not environment.get(name)]:
        data = (
            "a parquet or jsonl file of rows (the columns are in docs/data.md)"
            if stage == "grpo"
            else "a jsonl file of trajectory records (the fields are in docs/data.md)"
        )
        raise SetupError(
            f"{' and '.join(missing)} not set, which the cluster profile needs. MODEL_PATH is the checkpoint to train "
            f"(the recipe's README says which), TRAIN_FILES {data}. To run the small job on the synthetic world "
            "instead: --profile laptop"
        )
    if runs_here and not gpus and not on_ray:
        cluster = ", and RAY_ADDRESS names no cluster" if stage == "grpo" else ""
        raise SetupError(
            f"the cluster profile needs GPUs: this machine has none (nvidia-smi lists none){cluster}. "
            "To run the small job without GPUs: --profile laptop"
        )
    return profile


def config_name(stage: Stage, profile: Profile) -> str:
    """Name of a recipe's yaml file: GRPO's is the profile's, the other stages' are e.g. ``sft`` and ``sft_laptop``."""
    if stage == "grpo":
        return profile
    return f"{stage}_laptop" if profile == "laptop" else stage
