"""Corrections by a teacher: it names the flaw of a failed episode, and does better.

    agentic-video reflect --system videozoomer --rollouts RUN --teacher http://host:8000/v1 --out DIR

A recorded episode that answered wrong or not at all is played again up to its flawed call; from there the teacher goes
on. What ends right is kept: the flawed turns as context, the correction to learn from. The same command goes on where
it was killed. ``key=value`` arguments are Hydra overrides of the recipe's config.
"""

import argparse
from pathlib import Path

from agentic_video.commands.numbers import fraction
from agentic_video.commands.teachers import add_teacher, job_options, run_job, teacher_options
from agentic_video.synthesis.jobs import Finished
from agentic_video.synthesis.reflect import ReflectOptions, reflect

HELP = "let a teacher correct failed episodes, and keep what verifies for SFT"
TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video reflect``."""
    add_teacher(parser, limited="failures")
    parser.add_argument(
        "--rollouts",
        type=Path,
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
        )
    )
