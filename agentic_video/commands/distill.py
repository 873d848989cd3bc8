"""Demonstrations of a teacher: it plays a system's episodes over rows, and what verifies is kept, ready for SFT.

    agentic-video distill --system videozoomer --data train.jsonl --teacher http://host:8000/v1 --out DIR
    agentic-video distill --system videozoomer --out DIR    # small, without a GPU: a scripted teacher, synthetic videos

The same command goes on where it was killed. ``key=value`` arguments are Hydra overrides of the recipe's config.
"""

import argparse
from pathlib import Path

from agentic_video.commands.engine import SCRIPTED
from agentic_video.commands.numbers import fraction, natural, positive
from agentic_video.commands.paths import path
from agentic_video.commands.teachers import add_teacher, job_options, run_job, server_options, teacher_options
from agentic_video.config.compose import compose_recipe, find_recipe
from agentic_video.config.settings import settings_of
from agentic_video.launch.toyworld import build_toyworld, laptop_overrides
from agentic_video.synthesis.distill import DistillOptions, distill
from agentic_video.synthesis.jobs import Finished
from agentic_video.synthesis.team import TeamOptions
from agentic_video.synthesis.template_mix import OPTION, read_mix
from agentic_video.utils.devices import count_gpus
from agentic_video.utils.errors import SetupError
from agentic_video.utils.imports import make_importable

TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video distill``."""
    add_teacher(parser, without="where there is no GPU, a scripted one that knows the answers")
    parser.add_argument(
        "--data",
        type=path,
        action="append",
        default=[],
        metavar="FILE",
        help="parquet or jsonl file of rows; may be repeated (default with the scripted teacher: the synthetic rows)",
    )
    parser.add_argument(
        "--samples", type=positive, default=1, metavar="N", help="episodes of each question (default: %(default)s)"
    )
    parser.add_argument(
        "--min-acc",
        type=fraction,
        default=1.0,
        metavar="X",
        help="an answer graded at least this is right; lower it for open-ended rows that are graded by degrees "
        "(default: %(default)g)",
    )
    parser.add_argument(
        "--critic", default="", metavar="URL", help="server of a second model that rejects illogical paths"
    )
    parser.add_argument(
        "--critic-model", default="", metavar="NAME", help="name of the critic on its server, where it has several"
    )
    parser.add_argument(
        "--template-mix",
        default="",
        metavar="NAME:WEIGHT,...",
        help="for the system that has reasoning templates: how often the teacher is asked to follow each (direct, "
        "single_pass, timestamp_grounded, hierarchical, multi_interval), or none (free); an episode that follows "
        "another one isn't kept (default: it plays freely)",
    )
    team = parser.add_argument_group(
        "a team of teachers",
        "an executor, a reflective thinker, an experience bank, for the system that is taught by them",
    )
    team.add_argument("--single-teacher", action="store_true", help="without thinker and experience bank")
    team.add_argument(
        "--thinker-rounds",
        type=natural,
        default=TeamOptions.thinker_rounds,
        metavar="N",
        help="most times that a call is written again (default: %(default)s)",
    )
    team.add_argument(
        "--experiences",
        type=natural,
        default=TeamOptions.experiences,
        metavar="N",
        help="past successes shown (default: %(default)s)",
    )
    team.add_argument(
        "--bank-round",
        type=positive,
        default=TeamOptions.bank_round,
        metavar="N",
        help="the bank grows after each N questions (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Distil.

    Args:
        arguments: What :func:`add_arguments` reads, and ``overrides``, a list of Hydra overrides.

    Returns:
        Exit status: 0 when every episode was played, 1 when some couldn't be, 2 when nothing could start.
    """
    return run_job(_distill, arguments)


def _distill(arguments: argparse.Namespace) -> Finished:
    team = TeamOptions(arguments.thinker_rounds, arguments.experiences, arguments.bank_round)
    scripted = not arguments.teacher
    if scripted and arguments.template_mix:
        raise SetupError(f"{OPTION}: the scripted teacher can't be asked for templates; name one with --teacher")
    if scripted:
        choose_scripted(arguments)
    return distill(
        DistillOptions(
            job=job_options(arguments),
            teacher=teacher_options(arguments, arguments.teacher, arguments.teacher_name),
            data=tuple(arguments.data),
            samples=arguments.samples,
            min_acc=arguments.min_acc,
            critic=server_options(arguments, arguments.critic, arguments.critic_model) if arguments.critic else None,
            team=None if arguments.single_teacher or scripted else team,
            templates=read_mix(arguments.template_mix) if arguments.template_mix else None,
        )
    )


def choose_scripted(arguments: argparse.Namespace) -> None:
    """Let the scripted teacher play, on the synthetic rows where the command names none.

    Args:
        arguments: Of the command; get the teacher, its engine, the laptop profile, and what is built for them.

    Raises:
        SetupError: This machine has GPUs, or the cluster profile is asked for: such a run wants a real teacher.
        ValueError: The system has no oracle.
    """
    from agentic_video.toyworld.recipe import toy_recipe
    from agentic_video.toyworld.teacher import teacher_name

    if arguments.profile == "cluster" or (count_gpus() and arguments.profile is None):
        raise SetupError(
            "name a teacher with --teacher (the address of a server, or a checkpoint), or --profile laptop for the "
            "scripted one"
        )
    recipe = (arguments.recipe or find_recipe(arguments.system)).resolve()
    make_importable(recipe)
    config = compose_recipe(recipe, "laptop", arguments.overrides)
    # before anything is built
    arguments.teacher = teacher_name(settings_of(config).system, toy_recipe(config).oracle)
    arguments.engine, arguments.profile = SCRIPTED, "laptop"
    if not arguments.data:
        paths = build_toyworld(recipe, arguments.overrides, model="none")
        arguments.data = [Path(paths["train"])]
        built = [text for text in laptop_overrides(paths) if not text.startswith("data.")]
        arguments.overrides = [*built, *arguments.overrides]
