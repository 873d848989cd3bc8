"""Which profile a command runs, and which of a recipe's yaml files that is."""

from collections.abc import Mapping


class LaunchError(Exception):
    """The job can't start; the message says what to set."""


def choose_profile(asked: str | None, gpus: int, environment: Mapping[str, str], stage: str = "grpo") -> str:
    """``laptop`` without GPUs, ``cluster`` with them (or on a Ray cluster), unless one is asked for.

    Raises:
        LaunchError: The cluster profile lacks a model or data.
    """
    profile = asked or ("cluster" if gpus or environment.get("MODEL_PATH") else "laptop")
    if profile == "cluster":
        missing = [name for name in ("MODEL_PATH", "TRAIN_FILES") if not environment.get(name)]
        if missing:
            data = (
                "a parquet or jsonl file of rows (the columns are in agentic_video/data/schema.py)"
                if stage == "grpo"
                else "a jsonl file of trajectory records (the fields are in agentic_video/data/records.py)"
            )
            raise LaunchError(
                f"{gpus} GPUs found, but {' and '.join(missing)} not set. MODEL_PATH is the checkpoint to train (the "
                f"recipe's README says which), TRAIN_FILES {data}. To run the small job on the synthetic world "
                "instead: --profile laptop"
            )
    return profile


def config_name(stage: str, profile: str) -> str:
    """Name of a recipe's yaml file: GRPO's is the profile's, the other stages' are ``sft`` and ``sft_laptop``."""
    if stage == "grpo":
        return profile
    return f"{stage}_laptop" if profile == "laptop" else stage
