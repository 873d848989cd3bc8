"""Evaluate a system and a model on a benchmark, and report.

    agentic-video eval --system NAME --benchmark mlvu_dev --data mlvu_dev.jsonl --model CHECKPOINT --out DIR

The same command resumes where it was killed. ``key=value`` arguments are Hydra overrides of the recipe's config.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentic_video.commands.engine import TOY, choose_engine
from agentic_video.commands.eval_options import EvalArguments, variant_of
from agentic_video.commands.guard import guarded
from agentic_video.commands.released import chosen, evaluate_several
from agentic_video.utils.ray_cluster import auth_mode

if TYPE_CHECKING:
    from agentic_video.evaluation.checkpoints import Checkpoint
    from agentic_video.evaluation.options import EvalOptions
    from agentic_video.launch.toyworld import ToyModel


def run(options: EvalArguments) -> int:
    """Evaluate; exit status 1 when rows weren't played or have no grade yet, 2 when nothing could start."""
    return guarded(lambda: _run(options))


def _run(options: EvalArguments) -> int:
    from agentic_video.evaluation.evaluate import evaluate
    from agentic_video.utils.host import count_gpus

    if os.environ.get("RAY_ADDRESS"):
        os.environ.update(auth_mode(os.environ))  # before Ray is imported, which looks for it then
    gpus = count_gpus()
    found = chosen(options)
    if len(found) > 1 or (found and options.plan):
        return evaluate_several(found, options)
    evaluation = eval_options(options, gpus, *found)
    if evaluation.profile == "laptop" and not (evaluation.model.model and evaluation.data):
        evaluation = with_toyworld(evaluation, options.engine, gpus)
    return int(not all(result.complete for result in evaluate(evaluation)))


def eval_options(options: EvalArguments, gpus: int, checkpoint: "Checkpoint | None" = None) -> "EvalOptions":
    """The library's options; model and rows may still be missing. The command's own come before the checkpoint's."""
    from agentic_video.config.compose import recipe_at
    from agentic_video.evaluation.model import ModelOptions
    from agentic_video.evaluation.options import EvalOptions, read_sweep

    if checkpoint is None:
        model = options.model or os.path.expanduser(os.environ.get("MODEL_PATH", ""))
        recipe = options.recipe_folder()
        sampling: Mapping[str, float] = {}
    else:
        model, recipe, sampling = options.model or checkpoint.model, recipe_at(checkpoint.recipe), checkpoint.sampling
    engine = choose_engine(model, options.engine, gpus) if model else TOY
    return EvalOptions(
        recipe=recipe,
        model=ModelOptions(
            model=model,
            engine=engine,
            model_name=options.model_name,
            temperature=sampling.get("temperature") if options.temperature is None else options.temperature,
            top_p=sampling.get("top_p") if options.top_p is None else options.top_p,
            seed=options.seed,
            concurrency=options.concurrency,
            api_key_env=options.api_key_env,
            processor=options.processor,
        ),
        data=options.data,
        profile=options.profile or ("laptop" if engine == TOY else "cluster"),
        variant=variant_of(options),
        sweep=read_sweep(*options.sweep) if options.sweep else None,
        benchmark=options.benchmark,
        out=options.out,
        limit=options.limit or 0,
        concurrency=options.concurrency,
        shards=options.shards,
        overrides=(*(checkpoint.overrides if checkpoint else ()), *options.overrides),
        checkpoint=checkpoint.name if checkpoint else "",
    )


def with_toyworld(options: "EvalOptions", engine: str, gpus: int) -> "EvalOptions":
    """Return the options with the synthetic world's rows, and its tiny model, where they name none."""
    from agentic_video.config.compose import compose_recipe
    from agentic_video.config.settings import settings_of
    from agentic_video.evaluation.model import check_taught, require_model
    from agentic_video.evaluation.options import check_files
    from agentic_video.launch.toyworld import build_toyworld, laptop_overrides
    from agentic_video.utils.imports import make_importable

    make_importable(options.recipe)
    # mistakes are reported before anything is built
    check_files(options.data, "--data")
    model = options.model.model
    if model:
        require_model(options.model)
    config = compose_recipe(options.recipe, options.profile, options.overrides)
    system = settings_of(config).system
    plain = options.variant.kind == "baseline"
    if model and not plain:
        check_taught(model, system)  # a tiny model that has learnt another system's grammar can't answer
    needed: ToyModel = "none" if model else "base" if plain else "cold-start"
    paths = build_toyworld(options.recipe, options.overrides, data=not options.data, model=needed, config=config)
    model = model or paths["base" if plain else "model"]
    return replace(
        options,
        model=replace(options.model, model=model, engine=choose_engine(model, engine, gpus)),
        data=options.data or (Path(paths["heldout"]),),
        overrides=(*laptop_overrides({**paths, "model": model}), *options.overrides),
    )
