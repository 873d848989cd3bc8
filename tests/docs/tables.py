"""Reading the documentation's tables, and the configs that they are held against."""

import re
from functools import cache
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from tests.config.configs import RECIPES, composed

REPOSITORY = Path(__file__).resolve().parents[2]
STAGES = ("sft.yaml", "kto.yaml", "rft.yaml")
ROOTS = ("data", "actor_rollout_ref", "algorithm", "trainer", "reward", "agentic_video")
NOT_IN_YAML = {"agentic_video.system.stop", "agentic_video.system.name"}
TITLES = {
    "videozoomer": "VideoZoomer",
    "framethinker": "FrameThinker",
    "framemind": "FrameMind",
    "videobrain": "VideoBrain",
    "eva": "EVA",
    "paravt": "ParaVT",
    "timesearch": "TimeSearch-R",
    "longvt": "LongVT",
}


@cache
def cluster(system: str, profile: str = "cluster") -> DictConfig:
    """A system's published run, or another stage of it; not to be changed."""
    return composed(system, profile)


def stages_of(name: str) -> list[str]:
    """The configs of a recipe's published stages."""
    found = [path.removesuffix(".yaml") for path in STAGES if (RECIPES / name / "config" / path).exists()]
    return ["cluster", *found]


def has_key(config: DictConfig, key: str) -> bool:
    """Whether a config has a key, whatever its value."""
    parent, _, leaf = key.rpartition(".")
    block = OmegaConf.select(config, parent)
    return isinstance(block, DictConfig) and leaf in block


def section_of(text: str, heading: str) -> str:
    """The text below a heading, up to the next one of its level."""
    level = heading.split()[0]
    start = text.index(f"\n{heading}\n") + len(heading) + 2
    end = re.search(rf"^{level} ", text[start:], re.MULTILINE)
    return text[start : start + end.start()] if end else text[start:]


def rows_of(text: str) -> list[list[str]]:
    """The cells of all tables' rows, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for number, line in enumerate(lines)
        if "---" not in line and not (number + 1 < len(lines) and "---" in lines[number + 1])
    ]
