"""Corrections by a teacher: it names the flaw of a failed episode, and does better.

    agentic-video reflect --system videozoomer --rollouts RUN --teacher http://host:8000/v1 --out DIR

A recorded episode that answered wrong or not at all is played again up to its flawed call; from there the teacher goes
on. What ends right is kept: the flawed turns as context, the correction to learn from. The same command goes on where
it was killed. ``key=value`` arguments are Hydra overrides of the recipe's config.
"""

import argparse
from typing import get_args

from agentic_video.commands.numbers import fraction
from agentic_video.commands.paths import path
from agentic_video.commands.teachers import add_teacher, job_options, run_job, teacher_options
from agentic_video.synthesis.jobs import Finished
from agentic_video.synthesis.reflect import Kept, Loss, ReflectOptions, reflect

TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video reflect``."""
    add_teacher(parser, limited="failures")
    parser.add_argument(
        "--rollouts",
        type=path,
        action="append",
        required=True,
        metavar="PATH",
        help="file of trajectory records, or folder of a run or an evaluation; may be repeated",
    )
    parser.add_argument(
        "--min-acc",
        type=fraction,
        default=1.0,
        metavar="X",
        help="an answer graded less than this is a failure (default: %(default)g)",
    )
    parser.add_argument(
        "--keep",
        choices=get_args(Kept),
        default=ReflectOptions.keep,
        help="what a correction follows: the episode up to the turn that the teacher finds flawed, or all but its "
        "answer (default: %(default)s)",
    )
    parser.add_argument(
        "--loss",
        choices=get_args(Loss),
        default=ReflectOptions.loss,
        help="whose turns have loss in SFT: the correction's, or those before it too (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Reflect.

    Args:
        arguments: What :func:`add_arguments` reads, and ``overrides``, a list of Hydra overrides.

    Returns:
        Exit status: 0 when every failure was gone through, 1 when some couldn't be, 2 when nothing could start.
    """
    return run_job(_reflect, arguments)


def _reflect(arguments: argparse.Namespace) -> Finished:
    return reflect(
        ReflectOptions(
            job=job_options(arguments),
            teacher=teacher_options(arguments, arguments.teacher, arguments.teacher_name),
            rollouts=tuple(arguments.rollouts),
            min_acc=arguments.min_acc,
            keep=arguments.keep,
            loss=arguments.loss,
        )
    )
