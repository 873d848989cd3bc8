"""The papers' numbers, shown next to a run's."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

EMBEDDED = frozenset({"temporalbench_short_caption"})
"""Benchmarks whose captions are scored by a sentence encoder, which evaluations here don't run."""
_SPLIT = re.compile(r"_(?:val_v|val|test|eval|all)$")


@dataclass(frozen=True)
class PublishedScore:
    """A number from a paper."""

    paper: str  # whose number it is
    benchmark: str  # as lmms-eval names it
    model: str  # as the paper names it
    accuracy: float  # percent
    table: str  # where it stands
    frames: float | None = None  # mean frames of an episode, where given
    # visual tokens that the paper counts as one frame, where `frames` is estimated from tokens
    frame_tokens: int | None = None
    calls: int | None = None  # most calls allowed, where the table varies them
    note: str = ""  # what to mind


@cache
def published() -> tuple[PublishedScore, ...]:
    """All published numbers of ``published.yaml``."""
    text = files("agentic_video.evaluation").joinpath("published.yaml").read_text(encoding="utf-8")
    return tuple(PublishedScore(paper=block["paper"], **row) for block in yaml.safe_load(text) for row in block["rows"])


def published_for(benchmark: str) -> list[PublishedScore]:
    """The published numbers of a benchmark, by its name as in lmms-eval or with a split that tells nothing apart:
    ``lvbench_test`` is ``lvbench``, but ``mlvu_test`` is not ``mlvu_dev``."""
    name = benchmark.lower().replace("-", "_")
    bare = _SPLIT.sub("", name)
    return [row for row in published() if row.benchmark == name] or [
        row for row in published() if _SPLIT.sub("", row.benchmark) == bare and not row.benchmark.startswith("mlvu")
    ]


def published_by_calls(benchmark: str) -> list[PublishedScore]:
    """The published numbers of a benchmark that vary the most calls allowed, in their order."""
    return sorted((row for row in published_for(benchmark) if row.calls is not None), key=lambda row: row.calls or 0)
