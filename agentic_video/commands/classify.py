"""VideoBrain's classes, and the SFT and RL sets that are drawn by them.

    agentic-video classify --data rows.parquet --base http://base:8000/v1 --teacher http://teacher:8000/v1 --out DIR
    agentic-video classify --base-results eval/base --teacher-results eval/teacher --out DIR

The base model answers from the overview alone, the teacher may use the tools; who is right, and whether the teacher
used tools, says what a question needs (VideoBrain, section 3.2). The same command goes on where it was killed.
"""

import argparse
from collections.abc import Mapping
from typing import cast, get_args

from agentic_video.commands.numbers import fraction, natural, positive
from agentic_video.commands.paths import model as model_name
from agentic_video.commands.paths import path
from agentic_video.commands.teachers import add_teacher, job_options, run_job, teacher_options
from agentic_video.synthesis.classes import (
    CLASSES,
    RL_SHARES,
    RL_SIZE,
    SFT_SHARES,
    SFT_SIZE,
    Quota,
    SetOptions,
    Slip,
)
from agentic_video.synthesis.classify import ClassifyOptions, classify
from agentic_video.synthesis.jobs import Finished
from agentic_video.systems.registry import METHODS
from agentic_video.types.row import QuestionClass

TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video classify``."""
    add_teacher(parser, required=False)
    parser.add_argument(
        "--data",
        type=path,
        action="append",
        default=[],
        metavar="FILE",
        help="parquet or jsonl file of rows; may be repeated (default: the questions of --base-results)",
    )
    parser.add_argument(
        "--base",
        type=model_name,
        metavar="MODEL",
        help="address of the base model's server, or folder of its checkpoint",
    )
    parser.add_argument(
        "--base-name", default="", metavar="NAME", help="name of the base model on its server, where it has several"
    )
    parser.add_argument(
        "--base-frames",
        type=positive,
        metavar="N",
        help="show the base model N uniform frames in the plain baseline's way (default: the system itself without its "
        "tools)",
    )
    parser.add_argument(
        "--base-results",
        type=path,
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="evaluations of the base model, in place of --base; each is a sample",
    )
    parser.add_argument(
        "--teacher-results",
        type=path,
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="evaluations of the teacher with tools, in place of --teacher; each is a sample",
    )
    parser.add_argument(
        "--samples",
        type=positive,
        default=1,
        metavar="N",
        help="answers of each model that is played; the majority counts; several need a temperature above 0 (default: "
        "%(default)s)",
    )
    _add_sets(parser)


def _add_sets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--right-from",
        type=fraction,
        default=1.0,
        metavar="X",
        help="grade from which an answer is right (default: %(default)g)",
    )
    parser.add_argument(
        "--slip",
        choices=get_args(Slip),
        default="drop",
        help="what becomes of a question that the base model gets right and the teacher, without tools, wrong "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--sft-size", type=natural, default=SFT_SIZE, metavar="N", help="rows of the SFT set (default: %(default)s)"
    )
    parser.add_argument(
        "--sft-shares",
        type=shares,
        default=SFT_SHARES,
        metavar="CLASS=SHARE,...",
        help=f"shares of the classes in the SFT set (default: {_shares_text(SFT_SHARES)})",
    )
    parser.add_argument(
        "--sft-wrong",
        action="store_true",
        help="where the teacher was never right, learn from a wrong trajectory",
    )
    parser.add_argument(
        "--rl-size", type=natural, default=RL_SIZE, metavar="N", help="rows of the RL set (default: %(default)s)"
    )
    parser.add_argument(
        "--rl-shares",
        type=shares,
        default=RL_SHARES,
        metavar="CLASS=SHARE,...",
        help=f"shares of the classes in the RL set (default: {_shares_text(RL_SHARES)})",
    )
    parser.add_argument(
        "--fill",
        action="store_true",
        help="where a class is scarce, break the shares rather than make both sets smaller",
    )
    parser.add_argument(
        "--draw", type=natural, default=0, metavar="SEED", help="of the choice of rows (default: %(default)s)"
    )


def shares(text: str) -> dict[QuestionClass, float]:
    """Shares that add up to 1, for :mod:`argparse`."""
    found: dict[QuestionClass, float] = {}
    for pair in text.split(","):
        name, _, value = pair.partition("=")
        if name.strip() not in CLASSES or name.strip() in found:
            raise argparse.ArgumentTypeError(
                f"{pair!r}: expected each of {', '.join(CLASSES)} at most once, as NAME=SHARE"
            )
        found[cast(QuestionClass, name.strip())] = fraction(value)
    if abs(sum(found.values()) - 1) > 1e-6:
        raise argparse.ArgumentTypeError(f"{text}: the shares add up to {sum(found.values()):g}, not to 1")
    return found


def _shares_text(shares: Mapping[QuestionClass, float]) -> str:
    return ",".join(f"{kind}={share:g}" for kind, share in shares.items())


def run(arguments: argparse.Namespace) -> int:
    """Classify.

    Args:
        arguments: What :func:`add_arguments` reads, and ``overrides``, a list of Hydra overrides.

    Returns:
        Exit status: 0, 1 when a row isn't classified or a set is empty, 2 when nothing could start.
    """
    return run_job(_classify, arguments)


def _classify(arguments: argparse.Namespace) -> Finished:
    base, teacher, system = arguments.base, arguments.teacher, METHODS["classify"]
    return classify(
        ClassifyOptions(
            job=job_options(arguments),
            data=tuple(arguments.data),
            base=teacher_options(arguments, base, arguments.base_name, "--base", system) if base else None,
            base_results=tuple(arguments.base_results),
            base_frames=arguments.base_frames,
            teacher=teacher_options(arguments, teacher, arguments.teacher_name, system=system) if teacher else None,
            teacher_results=tuple(arguments.teacher_results),
            samples=arguments.samples,
            sets=SetOptions(
                right_from=arguments.right_from,
                slip=arguments.slip,
                sft=Quota(arguments.sft_size, arguments.sft_shares),
                rl=Quota(arguments.rl_size, arguments.rl_shares),
                fill=arguments.fill,
                wrong_too=arguments.sft_wrong,
                seed=arguments.draw,
            ),
        )
    )
