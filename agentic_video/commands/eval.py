"""Evaluate a system and a model on a benchmark, and report.

    agentic-video eval --system NAME --benchmark mlvu_dev --data mlvu_dev.jsonl --model CHECKPOINT --out DIR

The same command resumes where it was killed. ``key=value`` arguments are Hydra overrides of the recipe's config.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentic_video.commands.guard import guarded
from agentic_video.commands.released import chosen, evaluate_several
from agentic_video.evaluation.engine import TOY
from agentic_video.evaluation.options import EvalOptions, check_files
from agentic_video.utils.ray_cluster import auth_mode

if TYPE_CHECKING:
    from agentic_video.evaluation.checkpoints import Checkpoint
    from agentic_video.launch.toyworld import ToyModel


def run(options: EvalOptions) -> int:
    """Evaluate; exit status 1 when rows weren't played or have no grade yet, 2 when nothing could start."""
    return guarded(lambda: _run(options))


def _run(options: EvalOptions) -> int:
    from agentic_video.evaluation.evaluate import evaluate

    if os.environ.get("RAY_ADDRESS"):
        os.environ.update(auth_mode(os.environ))  # before Ray is imported, which looks for it then
    found = chosen(options)
    if len(found) > 1 or (found and options.plan):
        return evaluate_several(found, options)
    evaluation = resolved(options, *found)
    if evaluation.profile == "laptop" and not (evaluation.model and evaluation.data):
        evaluation = with_toyworld(evaluation)
    return int(not all(result.complete for result in evaluate(evaluation)))


def resolved(options: EvalOptions, checkpoint: "Checkpoint | None" = None) -> EvalOptions:
    """The options with the checkpoint's, or the environment's, where they name none, and with a profile.

    Model and rows may still be missing.
    """
    from agentic_video.config.compose import check_recipe, recipe_at
    from agentic_video.config.overrides import check_overrides

    if checkpoint is None:
        options = replace(options, model=options.model or os.path.expanduser(os.environ.get("MODEL_PATH", "")))
    else:
        sampling = checkpoint.sampling
        options = replace(
            options,
            model=options.model or checkpoint.model,
            recipe=recipe_at(checkpoint.recipe),
            temperature=sampling.get("temperature") if options.temperature is None else options.temperature,
            top_p=sampling.get("top_p") if options.top_p is None else options.top_p,
            overrides=(*checkpoint.overrides, *options.overrides),
            checkpoint=checkpoint.name,
        )
    options = replace(options, profile=options.profile_of(options.spec.engine if options.model else TOY))
    options.variant, options.swept  # noqa: B018 (a mistake is found before anything is built)
    check_overrides(options.overrides)
    check_recipe(options.recipe_folder())
    return options


def with_toyworld(options: EvalOptions) -> EvalOptions:
    """Return the options with the synthetic world's rows, and its tiny model, where they name none."""
    from agentic_video.config.compose import compose_recipe
    from agentic_video.config.settings import settings_of
    from agentic_video.evaluation.model import check_taught, require_model
    from agentic_video.launch.toyworld import build_toyworld, laptop_overrides
    from agentic_video.utils.imports import make_importable

    recipe, model = options.recipe_folder(), options.model
    make_importable(recipe)
    # mistakes are reported before anything is built
    check_files(options.data, "--data")
    if model:
        require_model(options.spec)
    config = compose_recipe(recipe, "laptop", options.overrides)
    system = settings_of(config).system
    plain = options.variant.kind == "baseline"
    if model and not plain:
        check_taught(model, system)  # a tiny model that has learnt another system's grammar can't answer
    needed: ToyModel = "none" if model else "base" if plain else "cold-start"
    paths = build_toyworld(recipe, options.overrides, data=not options.data, model=needed, config=config)
    model = model or paths["base" if plain else "model"]
    return replace(
        options,
        model=model,
        data=options.data or (Path(paths["heldout"]),),
        overrides=(*laptop_overrides({**paths, "model": model}), *options.overrides),
    )
