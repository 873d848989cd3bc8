"""Several released checkpoints on the same questions: what that costs, before anything starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from agentic_video.config.compose import compose_recipe, recipe_at
from agentic_video.config.settings import limits_of, settings_of
from agentic_video.evaluation.ablations import without_tools
from agentic_video.evaluation.baseline import baseline_of
from agentic_video.evaluation.checkpoints import Checkpoint
from agentic_video.evaluation.context import require_encoder
from agentic_video.evaluation.model import ModelOptions, require_model
from agentic_video.evaluation.options import Variant
from agentic_video.evaluation.plan import fit_limits
from agentic_video.evaluation.report import table
from agentic_video.evaluation.results import finished, key_of
from agentic_video.types.row import VideoQA
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.utils.imports import make_importable


@dataclass(frozen=True)
class Stage:
    """What the evaluation of one checkpoint takes."""

    checkpoint: Checkpoint  # which one
    folder: Path  # of its evaluation
    left: int = 0  # questions that are still to be played
    tokens: int = 0  # most tokens of one episode, frames included
    said: int = 0  # most of them that are generated
    turns: int = 0  # most generations of an episode
    problem: str = ""  # why it can't be evaluated; empty where it can


def stage_of(
    checkpoint: Checkpoint,
    folder: Path,
    rows: Sequence[VideoQA],
    *,
    engine: str,
    profile: str,
    variant: Variant,
    overrides: Sequence[str] = (),
    option: str = "--model",
    api_key_env: str = ModelOptions.api_key_env,
) -> Stage:
    """What a checkpoint's evaluation takes; whatever is wrong with it is said in the stage."""
    try:
        recipe = recipe_at(checkpoint.recipe)
        make_importable(recipe)
        config = compose_recipe(recipe, profile, [*checkpoint.overrides, *overrides])
        settings, limits = settings_of(config), limits_of(config)
        require_model(ModelOptions(checkpoint.model, engine, api_key_env=api_key_env), option)
        if variant.kind != "baseline":  # which finds no frames by text
            require_encoder(settings.retrieval)
    except (SetupError, HydraException, OmegaConfBaseException, ValueError) as error:
        return Stage(checkpoint, folder, len(rows), problem=one_line(error))
    system = settings.system
    if variant.kind != "agent":
        system = (
            without_tools(system)
            if variant.kind == "no-tools"
            else baseline_of(system, variant.frames, tiny=False, prompt=variant.prompt)
        )
    limits = fit_limits(system, limits)
    wanted = {key_of(qa) for qa in rows}
    played = sum(key_of(record.qa) in wanted for record in finished(folder)[0])
    return Stage(
        checkpoint,
        folder,
        left=len(rows) - played,
        tokens=limits.prompt + limits.response,
        said=min(limits.response, system.max_turns * limits.turn),
        turns=system.max_turns,
    )


def plan_text(stages: Sequence[Stage], rows: Sequence[VideoQA], benchmark: str) -> str:
    """What evaluating several checkpoints takes, as Markdown."""
    able = [stage for stage in stages if not stage.problem]
    lines = [f"# Plan: {len(able)} of {len(stages)} checkpoints on {len(rows)} questions of {benchmark}", ""]
    header = ("checkpoint", "model", "weights", "left", "turns", "tokens", "generated", "published %")
    cells = []
    for stage in able:
        size, paper = stage.checkpoint.weight_bytes, stage.checkpoint.published(benchmark)
        cells.append(
            (
                stage.checkpoint.name,
                stage.checkpoint.model,
                "-" if size is None else f"{size / 1e9:.1f} GB",
                stage.left,
                f"<= {stage.turns}",
                f"<= {stage.left * stage.tokens:,}",
                f"<= {stage.left * stage.said:,}",
                "-" if paper is None else f"{paper.accuracy:.1f}",
            )
        )
    lines += table(header, cells)
    sizes = [stage.checkpoint.weight_bytes or 0 for stage in able]
    total = sum(stage.left * stage.tokens for stage in able)
    lines += [
        "",
        f"At most {total:,} tokens in all, frames included; weights of {sum(sizes) / 1e9:.1f} GB in bfloat16, one "
        "model at a time. Episodes mostly end long before their budgets.",
    ]
    if judged := sum(qa.answer_type == "open_ended" and not qa.hidden for qa in rows):
        lines.append(f"{judged} questions are open ended: most systems need a judge for them.")
    if notes := [stage.checkpoint for stage in able if stage.checkpoint.note]:
        lines += ["", *(f"- {one.name}: {one.note}" for one in notes)]
    if bad := [stage for stage in stages if stage.problem]:
        lines += ["", "Not possible here:", "", *(f"- {stage.checkpoint.name}: {stage.problem}" for stage in bad)]
    return "\n".join(lines) + "\n"
