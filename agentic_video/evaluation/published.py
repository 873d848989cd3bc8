"""The papers' numbers, to be shown beside one's own."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

EMBEDDED = frozenset({"temporalbench_short_caption"})
"""Benchmarks whose captions are scored by a sentence encoder, which evaluations here don't run."""
_SPLIT = re.compile(r"_(?:val_v|val|test|eval|all)$")


@dataclass(frozen=True)
class Published:
    """A number from a paper.

    Attributes:
        paper: Whose number it is.
        benchmark: As lmms-eval names it.
        model: As the paper names it.
        accuracy: Percent.
        table: Where it stands.
        frames: Mean frames of an episode, where given.
        frame_tokens: Visual tokens that the paper counts as one frame, where ``frames`` is estimated from tokens.
        calls: Most calls allowed, where the table varies them.
        note: What to mind.
    """

    paper: str
    benchmark: str
    model: str
    accuracy: float
    table: str
    frames: float | None = None
    frame_tokens: int | None = None
    calls: int | None = None
    note: str = ""


@cache
def published() -> tuple[Published, ...]:
    """All published numbers of ``published.yaml``."""
    text = files("agentic_video.evaluation").joinpath("published.yaml").read_text(encoding="utf-8")
    return tuple(Published(paper=block["paper"], **row) for block in yaml.safe_load(text) for row in block["rows"])


def published_for(benchmark: str) -> list[Published]:
    """The published numbers of a benchmark, by its name as in lmms-eval or with a split that tells nothing apart:
    ``lvbench_test`` is ``lvbench``, but ``mlvu_test`` is not ``mlvu_dev``."""
    name = benchmark.lower().replace("-", "_")
    bare = _SPLIT.sub("", name)
    return [row for row in published() if row.benchmark == name] or [
        row for row in published() if _SPLIT.sub("", row.benchmark) == bare and not row.benchmark.startswith("mlvu")
    ]


def published_by_calls(benchmark: str) -> list[Published]:
    """The published numbers of a benchmark that vary the most calls allowed, in their order."""
    return sorted(
        (row for row in published_for(benchmark) if row.calls is not None),
        key=lambda row: row.calls or 0,
    )
