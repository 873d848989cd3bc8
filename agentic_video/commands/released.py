"""Released checkpoints in ``agentic-video eval``: one by name, or several in turn, each in its own process.

A process gives a model's memory back when it ends, however it ends: a checkpoint that can't be loaded, or an engine
that dies, doesn't stop the others.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agentic_video.commands.parsing import words_of
from agentic_video.evaluation.options import EvalOptions, check_files, checkpoints_folder
from agentic_video.utils.errors import SetupError

if TYPE_CHECKING:
    from agentic_video.evaluation.checkpoints import Checkpoint
    from agentic_video.evaluation.released import CheckpointPlan

TAIL_BYTES = 4_096
"""End of a process's messages that is searched for the reason of its failure."""


def chosen(options: EvalOptions) -> "list[Checkpoint]":
    """The checkpoints that the options name; none where they name a recipe."""
    from agentic_video.evaluation.checkpoints import checkpoints, named

    recipe = options.system or options.recipe
    if not options.checkpoint:
        if options.plan or options.checkpoints:
            raise SetupError("--plan and --checkpoints go with --checkpoint NAME", key="--checkpoint")
        if not recipe:
            raise SetupError("name what plays: --system NAME, --recipe FOLDER, or --checkpoint NAME", key="--system")
        return []
    if recipe:
        raise SetupError("--checkpoint names its recipe itself: leave --system and --recipe out", key="--checkpoint")
    found = named(options.checkpoint, checkpoints(options.checkpoints))
    if options.model and len(found) > 1:
        raise SetupError("--model goes with one checkpoint: several have a model each", key="--model")
    return found


def evaluate_several(found: "Sequence[Checkpoint]", options: EvalOptions) -> int:
    """Print the plan, evaluate the checkpoints in turn, and compare; exit status 0 when every row was played."""
    from agentic_video.datasets.rows import load_rows
    from agentic_video.evaluation.compare import EvalRun, read_run, write_comparison
    from agentic_video.evaluation.released import plan_checkpoint, plan_text
    from agentic_video.evaluation.results import distinct

    if not options.data:
        raise SetupError("name rows with --data", key="--data")
    if options.sweep:
        raise SetupError("--sweep goes with one checkpoint, not with several", key="--sweep")
    check_files(options.data, "--data")
    rows, _ = distinct(load_rows(options.data, hidden=True)[0])
    rows = rows[: options.limit] if options.limit else rows
    benchmark = options.benchmark or options.data[0].stem
    out = (options.out or checkpoints_folder(benchmark)).resolve()
    variant = options.variant.name
    stages = [plan_checkpoint(checkpoint, out / checkpoint.name / variant, rows, options) for checkpoint in found]
    print(plan_text(stages, rows, benchmark), file=sys.stderr if not options.plan else sys.stdout)
    if options.plan:
        return 0
    if all(stage.problem for stage in stages):
        raise SetupError(f"no checkpoint can be evaluated; the first: {stages[0].problem}")
    runs, complete = [], True
    for stage in stages:
        status, problem = (2, stage.problem) if stage.problem else _play(stage, options)
        complete = complete and status == 0
        try:
            runs.append(read_run(stage.folder, stage.checkpoint.name, stage.checkpoint.published(benchmark)))
        except SetupError:
            runs.append(EvalRun(stage.checkpoint.name, (), problem=problem or "no episode was played"))
    print(write_comparison(out, f"Released checkpoints on {benchmark}", runs), end="")
    print(f"comparison: {out / 'comparison.md'}")
    return int(not complete)


def _play(stage: "CheckpointPlan", options: EvalOptions) -> tuple[int, str]:
    """Evaluate one checkpoint in a process of its own, whose messages are passed on."""
    print(f"== {stage.checkpoint.name}", file=sys.stderr, flush=True)
    words = words_of(replace(options, checkpoint=stage.checkpoint.name, out=stage.folder))
    with subprocess.Popen(
        [sys.executable, "-m", "agentic_video.cli", "eval", *words], stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        tail = b""
        while piece := process.stderr.read1(1 << 16):  # type: ignore[attr-defined]
            sys.stderr.buffer.write(piece)
            sys.stderr.flush()
            tail = (tail + piece)[-TAIL_BYTES:]
    if process.returncode in (0, 1):
        return process.returncode, ""
    lines = [line for line in tail.decode(errors="replace").replace("\r", "\n").splitlines() if line.strip()]
    return process.returncode, f"exit status {process.returncode}: {lines[-1].strip()[:300] if lines else 'no message'}"
