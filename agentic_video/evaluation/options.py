"""Options of ``agentic-video eval``."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, PositiveInt
from tyro.conf import UseAppendAction

from agentic_video.evaluation.engine import EngineOptions, RecipeOptions
from agentic_video.systems.prompts import load_prompt
from agentic_video.utils.environment import output_folder
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.utils.option_types import ModelName, OutputFolder, Overrides
from agentic_video.video.sampling import MAX_COUNT

if TYPE_CHECKING:
    from agentic_video.evaluation.model import ModelOptions

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


@dataclass(frozen=True, kw_only=True)
class EvalOptions(EngineOptions, RecipeOptions):
    """An evaluation."""

    checkpoint: str = ""
    """a released checkpoint by name, instead of --system and --model; several with commas in between, or all: one after
    the other, then a comparison"""
    checkpoints: UseAppendAction[tuple[Path, ...]] = ()
    """yaml file with more checkpoints, as agentic_video/evaluation/checkpoints.yaml has them; may be repeated"""
    plan: bool = False
    """with --checkpoint, print what it takes, and stop"""
    model: ModelName = ""
    """folder of a checkpoint, its name on the hub, or address of an OpenAI-compatible server (http://host:8000/v1)
    (default: MODEL_PATH, else the tiny model of the laptop profile; with --baseline its base model)"""
    model_name: str = ""
    """name of the model on the server, where it has several"""
    data: UseAppendAction[tuple[Path, ...]] = ()
    """parquet or jsonl file of rows; may be repeated (default: the synthetic held-out rows, in the laptop profile)"""
    benchmark: str = ""
    """name for the report, by which published numbers go, e.g. mlvu_dev (default: the first file's name)"""
    out: OutputFolder | None = None
    """folder of the evaluation (default: RECIPE-eval/BENCHMARK/... in OUTPUT_DIR, or in outputs)"""
    no_tools: bool = False
    """the same overview, and one turn, which must answer"""
    baseline: PositiveInt | None = None
    """N uniform frames and the question, instead of the system"""
    baseline_prompt: str = ""
    """the baseline's prompt: baseline (the answer alone), baseline_cot (a chain of thought before it), or a custom file
    (default: baseline)"""
    sweep: tuple[str, str] | None = None
    """KIND VALUES: evaluate once for each value: frames 8,16,32 or calls 0,1,2,4"""
    seed: Annotated[int, Field(ge=-1)] = 0
    """of sampling; -1 sends none, for servers that refuse it"""
    limit: PositiveInt | None = None
    """only the first N rows (default: all)"""
    concurrency: PositiveInt = 32
    """episodes at a time, in each shard"""
    shards: PositiveInt | None = None
    """parallel processes, each with its own engine (default: one for each GPU, or each group of them that tensor
    parallelism needs)"""
    overrides: Overrides = ()

    @property
    def variant(self) -> Variant:
        """The agent, the agent without tools, or the baseline."""
        if self.baseline is not None:
            return Variant("baseline", self.baseline, self.baseline_prompt or PLAIN)
        if self.baseline_prompt:
            raise SetupError("--baseline-prompt is for --baseline N", key="--baseline-prompt")
        return Variant("no-tools" if self.no_tools else "agent")

    @property
    def swept(self) -> Sweep | None:
        """The sweep, if there is one."""
        return read_sweep(*self.sweep) if self.sweep else None

    @property
    def spec(self) -> "ModelOptions":
        """The model with the engine that suits it."""
        return self.model_options(self.model, self.model_name, seed=self.seed, concurrency=self.concurrency)

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
        return output_folder(os.environ) / f"{self.recipe_folder().name}-eval" / self.benchmark_name / below


def checkpoints_folder(benchmark: str) -> Path:
    """Folder of the evaluations of released checkpoints on a benchmark."""
    return output_folder(os.environ) / "checkpoints-eval" / benchmark


def check_files(paths: Sequence[Path], option: str) -> None:
    """Check that an option's files exist."""
    for path in paths:
        if not path.is_file():
            problem = "a folder" if path.is_dir() else "no such file"
            raise SetupError(f"{option} {path}: {problem}; name a parquet or jsonl file of rows", key=option)
