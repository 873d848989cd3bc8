"""Which profile a command runs, and which of a recipe's yaml files that is."""

from collections.abc import Mapping

from agentic_video.launch.options import Profile, Stage
from agentic_video.utils.errors import SetupError


def choose_profile(asked: Profile | None, gpus: int, environment: Mapping[str, str], stage: Stage = "grpo") -> Profile:
    """``laptop`` without GPUs, ``cluster`` with them (or on a Ray cluster), unless one is asked for.

    Args:
        asked: The profile that the command names, if any.
        gpus: Number of GPUs of this machine.
        environment: Environment variables; ``MODEL_PATH`` alone asks for the cluster too.
        stage: What is trained; says what its data must be.

    Raises:
        SetupError: The cluster profile lacks a model or data.
    """
    profile: Profile = asked or ("cluster" if gpus or environment.get("MODEL_PATH") else "laptop")
    missing = [name for name in ("MODEL_PATH", "TRAIN_FILES") if not environment.get(name)]
    if profile == "cluster" and missing:
        data = (
            "a parquet or jsonl file of rows (the columns are in agentic_video/types/row.py)"
            if stage == "grpo"
            else "a jsonl file of trajectory records (the fields are in agentic_video/types/record.py)"
        )
        raise SetupError(
            f"{gpus} GPUs found, but {' and '.join(missing)} not set. MODEL_PATH is the checkpoint to train (the "
            f"recipe's README says which), TRAIN_FILES {data}. To run the small job on the synthetic world "
            "instead: --profile laptop"
        )
    return profile


def config_name(stage: Stage, profile: Profile) -> str:
    """Name of a recipe's yaml file: GRPO's is the profile's, the other stages' are e.g. ``sft`` and ``sft_laptop``."""
    if stage == "grpo":
        return profile
    return f"{stage}_laptop" if profile == "laptop" else stage
