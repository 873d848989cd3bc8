"""Plans of evaluating several released checkpoints: their cost, before anything starts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from agentic_video.config.compose import compose_recipe, recipe_at
from agentic_video.config.settings import limits_of, settings_of
from agentic_video.evaluation.checkpoints import Checkpoint
from agentic_video.evaluation.context import require_encoder
from agentic_video.evaluation.evaluate import variant_of
from agentic_video.evaluation.model import require_model
from agentic_video.evaluation.options import EvalOptions
from agentic_video.evaluation.plan import fit_limits
from agentic_video.evaluation.results import finished, key_of
from agentic_video.evaluation.tables import table
from agentic_video.types.row import VideoQA
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.utils.imports import make_importable


@dataclass(frozen=True)
class CheckpointPlan:
    """Cost of one checkpoint's evaluation, or why it isn't possible."""

    checkpoint: Checkpoint
    folder: Path  # of its evaluation
    left: int = 0  # questions still to be played
    tokens: int = 0  # most tokens of one episode, frames included
    generated: int = 0  # most generated tokens of one episode
    turns: int = 0  # most turns of one episode
    problem: str = ""


def plan_checkpoint(
    checkpoint: Checkpoint, folder: Path, rows: Sequence[VideoQA], options: EvalOptions
) -> CheckpointPlan:
    """Plan a checkpoint's evaluation; the overrides of the options come after the checkpoint's own."""
    option, variant = "--model" if options.model else f"checkpoint {checkpoint.name}:", options.variant
    checkpoint = replace(checkpoint, model=options.model or checkpoint.model)
    try:
        model = options.model_options(checkpoint.model, seed=options.seed, concurrency=1, option=option)
        recipe = recipe_at(checkpoint.recipe)
        make_importable(recipe)
        overrides = [*checkpoint.overrides, *options.overrides]
        config = compose_recipe(recipe, options.profile_of(model.engine), overrides)
        settings = settings_of(config)
        require_model(model, option)
        if variant.kind != "baseline":  # which finds no frames by text
            require_encoder(settings.retrieval)
    except (SetupError, HydraException, OmegaConfBaseException, ValueError) as error:
        return CheckpointPlan(checkpoint, folder, len(rows), problem=one_line(error))
    system, _ = variant_of(settings.system, variant, tiny=False)
    limits = fit_limits(system, limits_of(config))
    keys = {key_of(qa) for qa in rows}
    return CheckpointPlan(
        checkpoint,
        folder,
        left=len(rows) - sum(key_of(record.qa) in keys for record in finished(folder)[0]),
        tokens=limits.prompt + limits.response,
        generated=min(limits.response, system.max_turns * limits.turn),
        turns=system.max_turns,
    )


def plan_text(plans: Sequence[CheckpointPlan], rows: Sequence[VideoQA], benchmark: str) -> str:
    """The plans as Markdown."""
    possible = [plan for plan in plans if not plan.problem]
    cells = []
    for plan in possible:
        size, paper = plan.checkpoint.weight_bytes, plan.checkpoint.published(benchmark)
        cells.append(
            (
                plan.checkpoint.name,
                plan.checkpoint.model,
                "-" if size is None else f"{size / 1e9:.1f} GB",
                plan.left,
                f"<= {plan.turns}",
                f"<= {plan.left * plan.tokens:,}",
                f"<= {plan.left * plan.generated:,}",
                "-" if paper is None else f"{paper.accuracy:.1f}",
            )
        )
    header = ("checkpoint", "model", "weights", "left", "turns", "tokens", "generated", "published %")
    size = sum(plan.checkpoint.weight_bytes or 0 for plan in possible)
    lines = [
        f"# Plan: {len(possible)} of {len(plans)} checkpoints on {len(rows)} questions of {benchmark}",
        "",
        *table(header, cells),
        "",
        f"At most {sum(plan.left * plan.tokens for plan in possible):,} tokens in all, frames included; weights of "
        f"{size / 1e9:.1f} GB in bfloat16, one model at a time. Episodes mostly end long before their budgets.",
    ]
    if judged := sum(qa.answer_type == "open_ended" and not qa.hidden for qa in rows):
        lines.append(f"{judged} questions are open ended: most systems need a judge for them.")
    if notes := [f"- {plan.checkpoint.name}: {plan.checkpoint.note}" for plan in possible if plan.checkpoint.note]:
        lines += ["", *notes]
    if problems := [f"- {plan.checkpoint.name}: {plan.problem}" for plan in plans if plan.problem]:
        lines += ["", "Not possible here:", "", *problems]
    return "\n".join(lines) + "\n"
