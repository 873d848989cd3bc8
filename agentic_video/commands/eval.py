"""Play a benchmark with a system and a model, and report.

    agentic-video eval --system NAME --benchmark mlvu_dev --data mlvu_dev.jsonl --model CHECKPOINT --out DIR

The same command goes on where it was killed. ``key=value`` arguments are Hydra overrides of the recipe's config.
"""

import argparse
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentic_video.commands.engine import TOY, add_engine, add_key, add_recipe, add_sampling, choose_engine
from agentic_video.commands.guard import guarded
from agentic_video.commands.numbers import positive, seed_or_none
from agentic_video.commands.paths import folder_to_write, path
from agentic_video.commands.paths import model as model_name
from agentic_video.commands.released import add_checkpoint, chosen, evaluate_several, variant_of
from agentic_video.utils.ray_cluster import auth_mode

if TYPE_CHECKING:
    from agentic_video.evaluation.checkpoints import Checkpoint
    from agentic_video.evaluation.options import EvalOptions

TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video eval``."""
    add_recipe(parser, required=False)
    add_checkpoint(parser)
    parser.add_argument(
        "--model",
        type=model_name,
        metavar="MODEL",
        help="folder of a checkpoint, its name on the hub, or address of an OpenAI-compatible server "
        "(http://host:8000/v1) (default: MODEL_PATH, else the tiny model of the laptop profile; with --baseline the "
        "one it began as)",
    )
    parser.add_argument(
        "--model-name", default="", metavar="NAME", help="name of the model on the server, where it has several"
    )
    add_engine(parser)
    parser.add_argument(
        "--data",
        type=path,
        action="append",
        default=[],
        metavar="FILE",
        help="parquet or jsonl file of rows; may be repeated (default: the synthetic held-out rows, in the laptop "
        "profile)",
    )
    parser.add_argument(
        "--benchmark",
        default="",
        metavar="NAME",
        help="name for the report, by which published numbers go, e.g. mlvu_dev (default: the first file's name)",
    )
    parser.add_argument(
        "--out",
        type=folder_to_write,
        metavar="FOLDER",
        help="folder of the evaluation (default: RECIPE-eval/BENCHMARK/... in OUTPUT_DIR, or in outputs)",
    )
    parser.add_argument("--no-tools", action="store_true", help="the same overview, and one turn, which must answer")
    parser.add_argument(
        "--baseline", type=positive, metavar="N", help="N uniform frames and the question, in place of the system"
    )
    parser.add_argument(
        "--baseline-prompt",
        default="",
        metavar="NAME",
        help="what the baseline is asked to say: baseline (the answer alone), baseline_cot (a chain of thought before "
        "it), or a file of one's own (default: baseline)",
    )
    parser.add_argument(
        "--sweep",
        nargs=2,
        metavar=("KIND", "VALUES"),
        help="evaluate once for each value: frames 8,16,32 or calls 0,1,2,4",
    )
    add_sampling(parser)
    parser.add_argument(
        "--seed",
        type=seed_or_none,
        default=0,
        metavar="N",
        help="of sampling; -1 sends none, for servers that refuse it (default: %(default)s)",
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N rows (default: all)")
    parser.add_argument(
        "--concurrency",
        type=positive,
        default=32,
        metavar="N",
        help="episodes at a time, in each shard (default: %(default)s)",
    )
    parser.add_argument(
        "--shards",
        type=positive,
        metavar="N",
        help="parallel processes, each with its own engine (default: one for each GPU, or each group of them that "
        "tensor parallelism needs)",
    )
    add_key(parser)


def run(arguments: argparse.Namespace) -> int:
    """Evaluate.

    Args:
        arguments: What :func:`add_arguments` reads, and ``overrides``, a list of Hydra overrides.

    Returns:
        Exit status: 0 when every row was played, 1 when some couldn't be, were left out or have no grade yet, 2 when
        nothing could start.
    """
    return guarded(_run, arguments)


def _run(arguments: argparse.Namespace) -> int:
    from agentic_video.evaluation.evaluate import evaluate
    from agentic_video.utils.devices import count_gpus

    if os.environ.get("RAY_ADDRESS"):
        os.environ.update(auth_mode(os.environ))  # before Ray is imported, which looks for it then
    gpus = count_gpus()
    found = chosen(arguments)
    if len(found) > 1 or (found and arguments.plan):
        return evaluate_several(found, arguments)
    options = options_of(arguments, gpus, *found)
    if options.profile == "laptop" and not (options.model.model and options.data):
        options = with_toyworld(options, arguments.engine, gpus)
    return int(not all(result.complete for result in evaluate(options)))


def options_of(arguments: argparse.Namespace, gpus: int, checkpoint: "Checkpoint | None" = None) -> "EvalOptions":
    """What the arguments ask for; model and rows may still be missing.

    Args:
        checkpoint: That plays; what the arguments say themselves goes before what it says.

    Raises:
        SetupError: An argument makes no sense; the message names it.
    """
    from agentic_video.config.compose import find_recipe, recipe_at
    from agentic_video.evaluation.model import ModelOptions
    from agentic_video.evaluation.options import EvalOptions, read_sweep

    if checkpoint is None:
        model = arguments.model or model_name(os.environ.get("MODEL_PATH", ""))
        recipe = (arguments.recipe or find_recipe(arguments.system)).resolve()
        sampling: Mapping[str, float] = {}
    else:
        model, recipe, sampling = arguments.model or checkpoint.model, recipe_at(checkpoint.recipe), checkpoint.sampling
    engine = choose_engine(model, arguments.engine, gpus) if model else TOY
    return EvalOptions(
        recipe=recipe,
        model=ModelOptions(
            model=model,
            engine=engine,
            model_name=arguments.model_name,
            temperature=sampling.get("temperature") if arguments.temperature is None else arguments.temperature,
            top_p=sampling.get("top_p") if arguments.top_p is None else arguments.top_p,
            seed=arguments.seed,
            concurrency=arguments.concurrency,
            api_key_env=arguments.api_key_env,
            processor=arguments.processor,
        ),
        data=tuple(arguments.data),
        profile=arguments.profile or ("laptop" if engine == TOY else "cluster"),
        variant=variant_of(arguments),
        sweep=read_sweep(*arguments.sweep) if arguments.sweep else None,
        benchmark=arguments.benchmark,
        out=arguments.out,
        limit=arguments.limit or 0,
        concurrency=arguments.concurrency,
        shards=arguments.shards,
        overrides=(*(checkpoint.overrides if checkpoint else ()), *arguments.overrides),
        checkpoint=checkpoint.name if checkpoint else "",
    )


def with_toyworld(options: "EvalOptions", asked: str, gpus: int) -> "EvalOptions":
    """The options with the synthetic world's rows, and its tiny model, where they name none.

    Args:
        asked: The engine, as the option says it.

    Raises:
        SetupError: A file isn't there, the config is wrong, or the synthetic world couldn't be built.
        ValueError: A key of our own blocks is wrong.
    """
    from agentic_video.config.compose import compose_recipe
    from agentic_video.config.settings import settings_of
    from agentic_video.evaluation.model import check_taught, require_model
    from agentic_video.evaluation.options import check_files
    from agentic_video.launch.toyworld import ToyModel, build_toyworld, laptop_overrides
    from agentic_video.utils.imports import make_importable

    make_importable(options.recipe)
    # What is wrong is said before anything is built.
    check_files(options.data, "--data")
    named = options.model.model
    if named:
        require_model(options.model)
    config = compose_recipe(options.recipe, options.profile, options.overrides)
    system = settings_of(config).system
    # Who has learnt a system's grammar can't answer without it, if it is as small as the tiny model.
    plain = options.variant.kind == "baseline"
    if named and not plain:
        check_taught(named, system)
    made: ToyModel = "none" if named else "base" if plain else "cold-start"
    paths = build_toyworld(options.recipe, options.overrides, data=not options.data, model=made, config=config)
    model = named or paths["base" if plain else "model"]
    return replace(
        options,
        model=replace(options.model, model=model, engine=choose_engine(model, asked, gpus)),
        data=options.data or (Path(paths["heldout"]),),
        overrides=(*laptop_overrides({**paths, "model": model}), *options.overrides),
    )
