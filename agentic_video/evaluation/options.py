"""Options of an evaluation, checked before anything is loaded."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentic_video.config.compose import check_recipe
from agentic_video.config.overrides import check_overrides
from agentic_video.evaluation.model import ModelOptions
from agentic_video.systems.prompts import load_prompt
from agentic_video.utils.environment import output_folder
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.video.sampling import MAX_COUNT

PLAIN = "baseline"
"""The baseline's prompt that asks for the answer alone."""
SWEEPS = ("frames", "calls")


@dataclass(frozen=True)
class Variant:
    """The agent, or something plainer to compare it with: one turn without tools, or evenly spaced frames."""

    kind: Literal["agent", "no-tools", "baseline"] = "agent"
    frames: int = 0  # of the baseline
    prompt: str = PLAIN  # of the baseline: name of a template, or a file

    def __post_init__(self) -> None:
        try:
            load_prompt(self.prompt)
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"--baseline-prompt {self.prompt}: {one_line(error)}", key="--baseline-prompt") from error

    @property
    def curve(self) -> str:
        """Name of a sweep's curve: ``agent``, ``no-tools``, ``baseline``, ``baseline_cot``."""
        return Path(self.prompt).stem if self.kind == "baseline" else self.kind

    @property
    def name(self) -> str:
        """Name of the folder: ``agent``, ``no-tools``, ``baseline-64``, ``baseline_cot-64``."""
        return f"{self.curve}-{self.frames}" if self.kind == "baseline" else self.kind


@dataclass(frozen=True)
class Sweep:
    """The same evaluation, once for each value."""

    kind: str  # frames of the first view, or most calls allowed
    values: tuple[int, ...]  # ascending, each once


def read_sweep(kind: str, text: str) -> Sweep:
    """A sweep from its kind and its values, e.g. ``frames`` and ``8,16,32``."""
    if kind not in SWEEPS:
        raise SetupError(
            f"--sweep {kind}: there are {' and '.join(SWEEPS)}, e.g. --sweep frames 8,16,32", key="--sweep"
        )
    try:
        values = sorted({int(value) for value in text.split(",")})
    except ValueError:
        values = []
    if not values or values[0] < 0 or values[-1] > MAX_COUNT:
        raise SetupError(
            f"--sweep {kind} {text}: expected whole numbers from 0 to {MAX_COUNT}, e.g. {kind} 1,2,4", key="--sweep"
        )
    return Sweep(kind, tuple(values))


@dataclass(frozen=True)
class EvalOptions:
    """An evaluation."""

    recipe: Path  # folder, resolved
    model: ModelOptions
    data: tuple[Path, ...]  # files of rows
    profile: str = "cluster"  # of the recipe: laptop or cluster
    variant: Variant = Variant()
    sweep: Sweep | None = None
    benchmark: str = ""  # name for the report and for published numbers; empty takes the first file's
    out: Path | None = None  # folder of the evaluation; None takes one below the folder of all outputs
    limit: int = 0  # only so many rows; 0 takes all
    concurrency: int = 32  # episodes at a time, in each shard
    shards: int | None = None  # processes, each with its own engine; None: one for each GPU, or group of GPUs
    overrides: tuple[str, ...] = ()  # Hydra overrides of the recipe's config
    checkpoint: str = ""  # name of the released checkpoint that plays

    def __post_init__(self) -> None:
        check_overrides(self.overrides)
        for name, number in (("concurrency", self.concurrency), ("shards", self.shards)):
            if number is not None and number < 1:
                raise SetupError(f"--{name} must be at least 1", key=f"--{name}")
        check_recipe(self.recipe)

    @property
    def benchmark_name(self) -> str:
        """Name of the benchmark in the report."""
        return self.benchmark or self.data[0].stem

    @property
    def folder(self) -> Path:
        """Folder of the evaluation, resolved; a sweep has a folder below it for each value."""
        if self.out is not None:
            return self.out.resolve()
        below = "sweep" if self.sweep else self.variant.name
        if self.checkpoint:  # several may share a recipe
            return checkpoints_folder(self.benchmark_name) / self.checkpoint / below
        return output_folder(os.environ) / f"{self.recipe.name}-eval" / self.benchmark_name / below


def checkpoints_folder(benchmark: str) -> Path:
    """Folder of the evaluations of released checkpoints on a benchmark."""
    return output_folder(os.environ) / "checkpoints-eval" / benchmark


def check_files(paths: Sequence[Path], option: str) -> None:
    """Check that an option's files exist."""
    for path in paths:
        if not path.is_file():
            problem = "a folder" if path.is_dir() else "no such file"
            raise SetupError(f"{option} {path}: {problem}; name a parquet or jsonl file of rows", key=option)
