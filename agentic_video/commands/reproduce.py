"""Reproduce a paper: every stage in its order, from the data to the table beside the published numbers.

    agentic-video reproduce videozoomer                   # without GPUs and data: rehearse it on the synthetic world
    agentic-video reproduce videozoomer --paper --plan    # what the paper's needs, costs, and what is missing here
    agentic-video reproduce videozoomer --data /data --set teacher=http://host:8000/v1 --set judge=...
    agentic-video reproduce videozoomer --laptop grpo:trainer.total_training_steps=20

The plan comes first. The same command goes on where it was stopped: a stage that is whole isn't run again, one whose
inputs or settings have changed is said. STAGE:WORD adds a word to a stage's command, e.g. a Hydra override.
"""

import argparse
import os
import re
from collections.abc import Iterable
from pathlib import Path

from agentic_video.commands.guard import guarded
from agentic_video.commands.paths import folder_to_write, path
from agentic_video.systems.registry import SYSTEMS
from agentic_video.utils.errors import SetupError

TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video reproduce``."""
    parser.usage = "agentic-video reproduce [options] RECIPE [STAGE:WORD ...]"
    example = next(iter(SYSTEMS))
    parser.add_argument("recipe", metavar="RECIPE", help=f"name of a recipe, e.g. {example}, or its folder")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--laptop",
        dest="mode",
        action="store_const",
        const="laptop",
        help="rehearse the chain in small on the synthetic world (default without --data, GPUs and RAY_ADDRESS)",
    )
    which.add_argument("--paper", dest="mode", action="store_const", const="paper", help="the published stages")
    parser.add_argument("--plan", action="store_true", help="say what would be done and what is missing, and stop")
    parser.add_argument("--data", type=path, metavar="FOLDER", help="folder of the downloads (default: data)")
    parser.add_argument(
        "--out",
        type=folder_to_write,
        metavar="FOLDER",
        help="folder of the reproduction (default: RECIPE-reproduce-laptop or -paper in OUTPUT_DIR, or in outputs)",
    )
    parser.add_argument("--base", default="", metavar="MODEL", help="checkpoint to start from (default: the paper's)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting that the plan asks for; repeatable"
    )
    parser.add_argument(
        "--given",
        action="append",
        default=[],
        metavar="STAGE.OUTPUT=PATH",
        help="an output that is there already, e.g. sft.model=/models/released; its stage isn't run; repeatable",
    )
    parser.add_argument("--benchmarks", default="", metavar="A,B", help="evaluate on these only (default: all)")
    parser.add_argument("--until", default="", metavar="STAGE", help="stop after this stage")
    parser.add_argument(
        "--redo",
        action="append",
        default=[],
        metavar="STAGE",
        help="make a stage again, and all that follows from it; what they made is set aside; repeatable",
    )
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="STAGE",
        help="take what a stage has made as whole, whatever has changed or is missing in it; repeatable",
    )


def run(arguments: argparse.Namespace) -> int:
    """Reproduce.

    Args:
        arguments: What :func:`add_arguments` reads, and ``overrides``: words of the form STAGE:WORD.

    Returns:
        Exit status: 0 when all is whole (with ``--plan``: when nothing is missing), 1 when a stage failed, 2 when
        something is missing, 130 when it was interrupted.
    """
    return guarded(_run, arguments, models=False)


def _run(arguments: argparse.Namespace) -> int:
    from agentic_video.commands.guard import refused
    from agentic_video.commands.parsing import parsed
    from agentic_video.config.compose import recipe_at
    from agentic_video.launch.reproduce.chain import read_chain
    from agentic_video.launch.reproduce.plan import plan_text
    from agentic_video.launch.reproduce.reproduction import ReproduceOptions, Reproduction, shown
    from agentic_video.launch.reproduce.run import default_mode, run_steps
    from agentic_video.launch.reproduce.state import State
    from agentic_video.utils.devices import count_gpus
    from agentic_video.utils.environment import output_folder

    environment, gpus = {**os.environ}, count_gpus()
    recipe = recipe_at(arguments.recipe)
    mode = default_mode(arguments.mode, arguments.data is not None, gpus, environment)
    chain = read_chain(recipe, mode, [name for name in arguments.benchmarks.split(",") if name])
    out = arguments.out or output_folder(environment) / f"{recipe.name}-reproduce-{mode}"
    options = ReproduceOptions(
        out=out.resolve(),
        data=(arguments.data or Path("data")).resolve(),
        base=arguments.base,
        settings=dict(_pairs(arguments.set, "--set", r"[a-z]\w*", "NAME=VALUE")),
        words=tuple(_words(arguments.overrides)),
        given=dict(_given(arguments.given)),
        until=arguments.until,
        redo=tuple(arguments.redo),
        keep=tuple(arguments.keep),
    )
    reproduction = Reproduction(chain, options, State(options.out))
    for stage in reproduction.stages:
        if stage.words and reproduction.added_words(stage):
            # Hours before its turn: a word that its command doesn't take ends this one.
            parsed(reproduction.words(stage))
    missing = reproduction.missing(gpus, environment)
    print(plan_text(reproduction, missing, gpus, environment), flush=True)
    if mode == "laptop" and arguments.mode is None:
        print(
            "\nNo GPU, no RAY_ADDRESS and no --data here: this is the rehearsal. What the paper's needs: agentic-video "
            f"reproduce {shown(arguments.recipe)} --paper --plan",
            flush=True,
        )
    problems = [*reproduction.changed(), *missing]
    if problems:
        rest = f" (and {len(problems) - 1} more, in the list above)" if len(problems) > 1 else ""
        small = "" if mode == "laptop" else "; to rehearse it without data and GPUs: --laptop"
        return refused(f"nothing was started: {problems[0]}{rest}{small}")
    if arguments.plan:
        return 0
    print(flush=True)
    return run_steps(reproduction, environment)


def _words(words: Iterable[str]) -> Iterable[tuple[str, str]]:
    """(stage, word) of each STAGE:WORD."""
    for text in words:
        stage, colon, word = text.partition(":")
        if not colon or not word or not re.fullmatch(r"[a-z*?][\w*?-]*", stage):
            raise SetupError(f"{text}: neither an option nor STAGE:WORD, e.g. grpo:trainer.total_training_steps=20")
        yield stage, word


def _pairs(texts: Iterable[str], option: str, name: str, form: str) -> Iterable[tuple[str, str]]:
    """(name, value) of each NAME=VALUE."""
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not value or not re.fullmatch(name, key):
            raise SetupError(f"{option} {text}: expected {form}")
        yield key, value


def _given(texts: Iterable[str]) -> Iterable[tuple[tuple[str, str], Path]]:
    for key, value in _pairs(texts, "--given", r"[a-z][\w-]*\.[a-z]\w*", "STAGE.OUTPUT=PATH"):
        stage, _, output = key.partition(".")
        yield (stage, output), Path(value).expanduser().resolve()
