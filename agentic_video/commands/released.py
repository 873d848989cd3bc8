"""Released checkpoints in ``agentic-video eval``: one by name, or several one after the other, each in its own process.

A process of its own gives a model's memory back when it ends, however it ends: a checkpoint that can't be loaded, or an
engine that dies, doesn't stop the others.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentic_video.commands.paths import path
from agentic_video.utils.errors import SetupError

if TYPE_CHECKING:
    from agentic_video.evaluation.checkpoints import Checkpoint
    from agentic_video.evaluation.options import Variant
    from agentic_video.evaluation.released import Stage
    from agentic_video.types.row import VideoQA

TAIL_BYTES = 4_096
"""Of a process's messages, in which the reason for its end is looked for."""


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Add the options ``--checkpoint``, ``--checkpoints`` and ``--plan``."""
    parser.add_argument(
        "--checkpoint",
        default="",
        metavar="NAME",
        help="a released checkpoint by name, in place of --system and --model; several with commas in between, or all: "
        "one after the other, then a comparison",
    )
    parser.add_argument(
        "--checkpoints",
        type=path,
        action="append",
        default=[],
        metavar="FILE",
        help="yaml file with more checkpoints, as agentic_video/evaluation/checkpoints.yaml has them; may be repeated",
    )
    parser.add_argument("--plan", action="store_true", help="with --checkpoint, say what it takes, and stop")


def chosen(arguments: argparse.Namespace) -> "list[Checkpoint]":
    """The checkpoints that the arguments name; none where they name none.

    Raises:
        SetupError: There is no such checkpoint, or another option says what plays.
    """
    from agentic_video.evaluation.checkpoints import checkpoints, named

    which = arguments.system or arguments.recipe
    if not arguments.checkpoint:
        if arguments.plan or arguments.checkpoints:
            raise SetupError("--plan and --checkpoints go with --checkpoint NAME")
        if not which:
            raise SetupError("name what plays: --system NAME, --recipe FOLDER, or --checkpoint NAME")
        return []
    if which:
        raise SetupError("--checkpoint names its recipe itself: leave --system and --recipe out")
    found = named(arguments.checkpoint, checkpoints(arguments.checkpoints))
    if arguments.model and len(found) > 1:
        raise SetupError("--model goes with one checkpoint: several have a model each")
    return found


def evaluate_several(found: "Sequence[Checkpoint]", arguments: argparse.Namespace) -> int:
    """Say what it takes, evaluate one checkpoint after the other, and compare.

    Returns:
        Exit status: 0 when every checkpoint played every row, else 1.

    Raises:
        SetupError: An option doesn't fit, or no checkpoint can be evaluated.
    """
    from agentic_video.datasets.rows import load_rows
    from agentic_video.evaluation.compare import Run, read_run, write_comparison
    from agentic_video.evaluation.options import check_files, checkpoints_folder
    from agentic_video.evaluation.released import plan_text
    from agentic_video.evaluation.results import distinct

    if not arguments.data:
        raise SetupError("name rows with --data")
    if arguments.sweep:
        raise SetupError("--sweep goes with one checkpoint, not with several")
    check_files(arguments.data, "--data")
    rows, _ = distinct(load_rows(arguments.data, hidden=True)[0])
    rows = rows[: arguments.limit] if arguments.limit else rows
    benchmark = arguments.benchmark or arguments.data[0].stem
    out = (arguments.out or checkpoints_folder(benchmark)).resolve()
    variant = variant_of(arguments)
    stages = [_stage(one, out / one.name / variant.name, rows, variant, arguments) for one in found]
    print(plan_text(stages, rows, benchmark), file=sys.stderr if not arguments.plan else sys.stdout)
    if arguments.plan:
        return 0
    if all(stage.problem for stage in stages):
        raise SetupError(f"no checkpoint can be evaluated; the first: {stages[0].problem}")
    runs, whole = [], True
    for stage in stages:
        status, problem = (2, stage.problem) if stage.problem else _play(stage, arguments)
        whole = whole and status == 0
        try:
            runs.append(read_run(stage.folder, stage.checkpoint.name, stage.checkpoint.published(benchmark)))
        except SetupError:
            runs.append(Run(stage.checkpoint.name, (), problem=problem or "no episode was played"))
    print(write_comparison(out, f"Released checkpoints on {benchmark}", runs), end="")
    print(f"comparison: {out / 'comparison.md'}")
    return int(not whole)


def variant_of(arguments: argparse.Namespace) -> "Variant":
    """What plays."""
    from agentic_video.evaluation.options import PLAIN, Variant

    if arguments.baseline is not None:
        return Variant("baseline", arguments.baseline, arguments.baseline_prompt or PLAIN)
    if arguments.baseline_prompt:
        raise SetupError("--baseline-prompt is for --baseline N")
    return Variant("no-tools" if arguments.no_tools else "agent")


def _stage(
    checkpoint: "Checkpoint",
    folder: Path,
    rows: "Sequence[VideoQA]",
    variant: "Variant",
    arguments: argparse.Namespace,
) -> "Stage":
    from agentic_video.commands.engine import TOY, choose_engine
    from agentic_video.evaluation.released import Stage, stage_of
    from agentic_video.utils.devices import count_gpus

    if arguments.model:  # where the checkpoint is had from
        checkpoint = replace(checkpoint, model=arguments.model)
    try:
        option = "--model" if arguments.model else f"checkpoint {checkpoint.name}:"
        engine = choose_engine(checkpoint.model, arguments.engine, count_gpus(), option)
    except SetupError as error:
        return Stage(checkpoint, folder, len(rows), problem=str(error))
    return stage_of(
        checkpoint,
        folder,
        rows,
        engine=engine,
        option=option,
        api_key_env=arguments.api_key_env,
        profile=arguments.profile or ("laptop" if engine == TOY else "cluster"),
        variant=variant,
        overrides=arguments.overrides,
    )


def _play(stage: "Stage", arguments: argparse.Namespace) -> tuple[int, str]:
    """Evaluate one checkpoint in a process of its own, whose messages are passed on."""
    print(f"== {stage.checkpoint.name}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "agentic_video.cli", *words_for(stage, arguments)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        tail = b""
        while piece := process.stderr.read1(1 << 16):  # type: ignore[attr-defined]
            sys.stderr.buffer.write(piece)
            sys.stderr.flush()
            tail = (tail + piece)[-TAIL_BYTES:]
    if process.returncode in (0, 1):
        return process.returncode, ""
    said = [line for line in tail.decode(errors="replace").replace("\r", "\n").splitlines() if line.strip()]
    return process.returncode, f"exit status {process.returncode}: {said[-1].strip()[:300] if said else 'no message'}"


def words_for(stage: "Stage", arguments: argparse.Namespace) -> list[str]:
    """The command that evaluates one of several checkpoints, without the program's name."""
    words = ["eval", "--checkpoint", stage.checkpoint.name, "--out", str(stage.folder)]
    for name, values in (("--checkpoints", arguments.checkpoints), ("--data", arguments.data)):
        words += [word for value in values for word in (name, str(value))]
    single = {
        "--engine": arguments.engine,
        "--profile": arguments.profile,
        "--benchmark": arguments.benchmark,
        "--baseline": arguments.baseline,
        "--baseline-prompt": arguments.baseline_prompt,
        "--temperature": arguments.temperature,
        "--top-p": arguments.top_p,
        "--seed": arguments.seed,
        "--limit": arguments.limit,
        "--concurrency": arguments.concurrency,
        "--shards": arguments.shards,
        "--api-key-env": arguments.api_key_env,
        "--model-name": arguments.model_name,
        "--processor": arguments.processor,
    }
    words += [f"{name}={value}" for name, value in single.items() if value not in (None, "")]
    return [*words, *(["--no-tools"] if arguments.no_tools else []), *arguments.overrides]
