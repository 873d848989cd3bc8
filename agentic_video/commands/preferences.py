"""Desirable and undesirable trajectories for KTO (EVA, sections 3.2 and 4.1).

    agentic-video preferences --records outputs/eva-cluster/run-001 --judge http://judge:8000/v1 --out DIR
    agentic-video preferences --system eva --data rows.parquet --teacher http://model:8000/v1 --samples 4 \\
        --judge http://judge:8000/v1 --out DIR

Right answers that rest on what was seen are desirable; wrong ones, and guesses, are not. A judge reads each trajectory
and says whether it is a guess. The same command goes on where it was killed.
"""

import argparse
from typing import get_args

from agentic_video.commands.numbers import fraction, natural, positive, share
from agentic_video.commands.paths import path
from agentic_video.commands.teachers import add_teacher, job_options, run_job, server_options, teacher_options
from agentic_video.synthesis.jobs import Finished
from agentic_video.synthesis.preferences import SHARE, PreferenceOptions, Rejected, label
from agentic_video.systems.registry import METHODS
from agentic_video.utils.errors import SetupError

TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video preferences``."""
    parser.add_argument(
        "--records",
        type=path,
        action="append",
        default=[],
        metavar="PATH",
        help="file of records, or folder of a run or an evaluation; may be repeated",
    )
    add_teacher(parser, required=False)
    parser.add_argument(
        "--data",
        type=path,
        action="append",
        default=[],
        metavar="FILE",
        help="parquet or jsonl file of rows to play with --teacher, in place of or beside records; may be repeated",
    )
    parser.add_argument(
        "--samples", type=positive, default=1, metavar="N", help="episodes of each row (default: %(default)s)"
    )
    parser.add_argument(
        "--judge", required=True, metavar="URL", help="address of the judge's server: a model that reads text"
    )
    parser.add_argument(
        "--judge-name", default="", metavar="NAME", help="name of the judge on its server, where it has several"
    )
    parser.add_argument(
        "--judge-max-tokens",
        type=natural,
        default=16,
        metavar="N",
        help="most tokens of the judge's reply; 0 leaves it to the server, as reasoning models want it (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--rejected",
        choices=get_args(Rejected),
        default="wrong-or-guess",
        help="what is undesirable: wrong answers and guesses, or wrong guesses only as in the paper (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--right-from",
        type=fraction,
        default=0.5,
        metavar="X",
        help="accuracy from which an answer is right: 0 or 1 for choices, from 0 to 1 for open-ended questions "
        "(default: %(default)g)",
    )
    parser.add_argument(
        "--share", type=share, default=SHARE, metavar="X", help="share of desirable trajectories (default: %(default)g)"
    )
    parser.add_argument(
        "--size", type=positive, metavar="N", help="most trajectories; the paper has 11,000 (default: all)"
    )
    parser.add_argument(
        "--draw", type=natural, default=0, metavar="SEED", help="of the choice of trajectories (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Label.

    Args:
        arguments: What :func:`add_arguments` reads, and ``overrides``, a list of Hydra overrides.

    Returns:
        Exit status: 0, 1 when an episode couldn't be judged or a kind is missing, 2 when nothing could start.
    """
    return run_job(_label, arguments)


def _label(arguments: argparse.Namespace) -> Finished:
    if arguments.overrides and not arguments.data:
        # Where nothing is played there is no config: such an argument is a file that doesn't exist, say.
        raise SetupError(f"not an option: {arguments.overrides[0]}")
    teacher, name, system = arguments.teacher, arguments.teacher_name, METHODS["preferences"]
    return label(
        PreferenceOptions(
            job=job_options(arguments),
            judge=server_options(
                arguments, arguments.judge, arguments.judge_name, max_tokens=arguments.judge_max_tokens
            ),
            records=tuple(arguments.records),
            player=teacher_options(arguments, teacher, name, system=system) if teacher else None,
            data=tuple(arguments.data),
            samples=arguments.samples,
            right_from=arguments.right_from,
            rejected=arguments.rejected,
            share=arguments.share,
            size=arguments.size or 0,
            draw=arguments.draw,
        )
    )
