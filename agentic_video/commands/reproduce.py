"""Reproduce a paper: every stage in its order, from the data to the table next to the published numbers.

    agentic-video reproduce videozoomer                   # without GPUs and data: rehearse it on the synthetic world
    agentic-video reproduce videozoomer --paper --plan    # what the paper's needs, costs, and what is missing here
    agentic-video reproduce videozoomer --data /data --set teacher=http://host:8000/v1 --set judge=...
    agentic-video reproduce videozoomer --laptop grpo:trainer.total_training_steps=20

The plan comes first. The same command resumes where it was stopped: a complete stage isn't run again, one whose inputs
or settings have changed is reported. STAGE:WORD adds a word to a stage's command, e.g. a Hydra override.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional, UseAppendAction

from agentic_video.commands.guard import guarded, refused
from agentic_video.utils.errors import SetupError
from agentic_video.utils.option_types import OutputFolder, Overrides


@dataclass(frozen=True)
class ReproduceArguments:
    """A reproduction."""

    recipe: Positional[str]
    """name of a recipe, or its folder"""
    laptop: bool = False
    """rehearse the chain in small on the synthetic world (default without --data, GPUs and RAY_ADDRESS)"""
    paper: bool = False
    """the published stages"""
    plan: bool = False
    """print what would be done and what is missing, and stop"""
    data: Path | None = None
    """folder of the downloads (default: data)"""
    out: OutputFolder | None = None
    """folder of the reproduction (default: RECIPE-reproduce-laptop or -paper in OUTPUT_DIR, or in outputs)"""
    base: str = ""
    """checkpoint to start from (default: the paper's)"""
    set: UseAppendAction[tuple[str, ...]] = ()
    """NAME=VALUE: a setting that the plan asks for; may be repeated"""
    given: UseAppendAction[tuple[str, ...]] = ()
    """STAGE.OUTPUT=PATH: an output that exists already, e.g. sft.model=/models/released; its stage isn't run; may be
    repeated"""
    benchmarks: str = ""
    """A,B: evaluate on these only (default: all)"""
    until: str = ""
    """stop after this stage"""
    redo: UseAppendAction[tuple[str, ...]] = ()
    """make a stage again, and all that follows from it; what they made is set aside; may be repeated"""
    keep: UseAppendAction[tuple[str, ...]] = ()
    """take a stage's outputs as complete, whatever has changed or is missing in it; may be repeated"""
    overrides: Overrides = ()


def run(options: ReproduceArguments) -> int:
    """Reproduce; exit status 0 when all is complete (``--plan``: nothing is missing), 1 when a stage failed, else 2."""
    return guarded(lambda: _run(options), models=False)


def _run(options: ReproduceArguments) -> int:
    from agentic_video.commands.parsing import parsed
    from agentic_video.config.compose import recipe_at
    from agentic_video.launch.reproduce.chain import Mode, read_chain
    from agentic_video.launch.reproduce.plan import plan_text
    from agentic_video.launch.reproduce.reproduction import ReproduceOptions, Reproduction, shown
    from agentic_video.launch.reproduce.run import default_mode, run_steps
    from agentic_video.launch.reproduce.state import State
    from agentic_video.utils.environment import output_folder
    from agentic_video.utils.host import count_gpus

    if options.laptop and options.paper:
        raise SetupError("--laptop and --paper exclude each other: leave one of them out", key="--laptop")
    environment, gpus = {**os.environ}, count_gpus()
    recipe = recipe_at(options.recipe)
    requested: Mode | None = "laptop" if options.laptop else "paper" if options.paper else None
    mode = default_mode(requested, options.data is not None, gpus, environment)
    chain = read_chain(recipe, mode, [name for name in options.benchmarks.split(",") if name])
    out = options.out or output_folder(environment) / f"{recipe.name}-reproduce-{mode}"
    chosen = ReproduceOptions(
        out=out.resolve(),
        data=(options.data or Path("data")).resolve(),
        base=options.base,
        settings=dict(_pairs(options.set, "--set", r"[a-z]\w*", "NAME=VALUE")),
        words=tuple(_words(options.overrides)),
        given=dict(_given(options.given)),
        until=options.until,
        redo=options.redo,
        keep=options.keep,
    )
    reproduction = Reproduction(chain, chosen, State(chosen.out))
    for stage in reproduction.stages:
        if stage.words and reproduction.added_words(stage):
            parsed(reproduction.words(stage))  # hours before its turn: a word that its command doesn't take ends here
    missing = reproduction.missing(gpus, environment)
    print(plan_text(reproduction, missing, gpus, environment), flush=True)
    if mode == "laptop" and requested is None:
        print(
            "\nNo GPU, no RAY_ADDRESS and no --data here: this is the rehearsal. What the paper's needs: agentic-video "
            f"reproduce {shown(options.recipe)} --paper --plan",
            flush=True,
        )
    problems = [*reproduction.changed(), *missing]
    if problems:
        rest = f" (and {len(problems) - 1} more, in the list above)" if len(problems) > 1 else ""
        small = "" if mode == "laptop" else "; to rehearse it without data and GPUs: --laptop"
        return refused(f"nothing was started: {problems[0]}{rest}{small}")
    if options.plan:
        return 0
    print(flush=True)
    return run_steps(reproduction, environment)


def _words(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(stage, word) of each STAGE:WORD."""
    for text in words:
        stage, colon, word = text.partition(":")
        if not colon or not word or not re.fullmatch(r"[a-z*?][\w*?-]*", stage):
            raise SetupError(f"{text}: neither an option nor STAGE:WORD, e.g. grpo:trainer.total_training_steps=20")
        yield stage, word


def _pairs(texts: tuple[str, ...], option: str, name: str, form: str) -> Iterator[tuple[str, str]]:
    """(name, value) of each NAME=VALUE."""
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not value or not re.fullmatch(name, key):
            raise SetupError(f"{option} {text}: expected {form}", key=option)
        yield key, value


def _given(texts: tuple[str, ...]) -> Iterator[tuple[tuple[str, str], Path]]:
    for key, value in _pairs(texts, "--given", r"[a-z][\w-]*\.[a-z]\w*", "STAGE.OUTPUT=PATH"):
        stage, _, output = key.partition(".")
        yield (stage, output), Path(value).expanduser().resolve()
