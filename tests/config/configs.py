"""The recipes' configs, composed as a run gets them."""

from pathlib import Path

import pytest
from omegaconf import DictConfig

from agentic_video.config.compose import compose_recipe
from agentic_video.systems.base import System
from agentic_video.systems.eva.system import Eva
from agentic_video.systems.framemind.system import FrameMind
from agentic_video.systems.framethinker.system import FrameThinker
from agentic_video.systems.longvt.system import LongVT
from agentic_video.systems.paravt.system import ParaVT
from agentic_video.systems.timesearch.system import TimeSearch
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.systems.videoo3.system import VideoO3
from agentic_video.systems.videozoomer.system import VideoZoomer

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
SYSTEMS: dict[str, type[System]] = {
    "videozoomer": VideoZoomer,
    "framethinker": FrameThinker,
    "framemind": FrameMind,
    "paravt": ParaVT,
    "videobrain": VideoBrain,
    "videoo3": VideoO3,
    "timesearch": TimeSearch,
    "eva": Eva,
    "longvt": LongVT,
}
PROFILES = ("laptop", "cluster")
ENVIRONMENT = {
    "MODEL_PATH": "/models/qwen",
    "TRAIN_FILES": "/data/train.parquet",
    "JUDGE_BASE_URL": "http://judge:8000/v1",
    "JUDGE_MODEL": "some-judge",
}
"""What a user sets for the cluster profile."""


def set_environment(patch: pytest.MonkeyPatch) -> None:
    """What a user sets, and nothing else that the configs read."""
    for name in ("VAL_FILES", "NNODES", "GPUS_PER_NODE"):
        patch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        patch.setenv(name, value)


def composed(name: str, profile: str, *overrides: str) -> DictConfig:
    """A recipe's config; the caller may change it. It reads the environment when a value is read, or resolved."""
    return compose_recipe(RECIPES / name, profile, overrides)
