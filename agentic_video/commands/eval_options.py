"""Options of ``agentic-video eval``."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, PositiveInt
from tyro.conf import UseAppendAction

from agentic_video.commands.engine import EngineOptions, RecipeOptions
from agentic_video.utils.errors import SetupError
from agentic_video.utils.option_types import ModelName, OutputFolder, Overrides

if TYPE_CHECKING:
    from agentic_video.evaluation.options import Variant


@dataclass(frozen=True, kw_only=True)
class EvalArguments(EngineOptions, RecipeOptions):
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


def variant_of(options: EvalArguments) -> "Variant":
    """The agent, the agent without tools, or the baseline."""
    from agentic_video.evaluation.options import PLAIN, Variant

    if options.baseline is not None:
        return Variant("baseline", options.baseline, options.baseline_prompt or PLAIN)
    if options.baseline_prompt:
        raise SetupError("--baseline-prompt is for --baseline N", key="--baseline-prompt")
    return Variant("no-tools" if options.no_tools else "agent")
