"""New questions: a teacher writes them about new videos, like those at which the agent fails.

    agentic-video enhance --failures mined.jsonl --videos new_videos/ --existing train.parquet \\
        --teacher http://teacher:8000/v1 --out DIR

EVA's data-enhanced GRPO (section 3.2): failures are the teacher's examples, the questions are open ended and their
answers short. ``rows.jsonl`` is what GRPO reads. The same command goes on where it was killed.
"""

import argparse

from agentic_video.commands.numbers import amount, fraction, natural, positive
from agentic_video.commands.paths import path
from agentic_video.commands.teachers import add_job, job_options, run_job, server_options
from agentic_video.synthesis.enhance import EnhanceOptions, enhance
from agentic_video.synthesis.jobs import Finished
from agentic_video.synthesis.questions import Rules
from agentic_video.systems.registry import METHODS

TAKES_OVERRIDES = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video enhance``."""
    parser.add_argument(
        "--failures",
        type=path,
        action="append",
        required=True,
        metavar="FILE",
        help="rows that agentic-video mine wrote; may be repeated",
    )
    parser.add_argument(
        "--videos",
        type=path,
        action="append",
        required=True,
        metavar="PATH",
        help="new videos: a folder, a video, or a text file with a path a line; may be repeated",
    )
    parser.add_argument(
        "--existing",
        type=path,
        action="append",
        default=[],
        metavar="FILE",
        help="rows of the training set, whose questions aren't written again and whose videos are passed over; may be "
        "repeated",
    )
    parser.add_argument(
        "--teacher",
        required=True,
        metavar="URL",
        help="address of an OpenAI-compatible server with a model that sees images",
    )
    parser.add_argument(
        "--teacher-name", default="", metavar="NAME", help="name of the model on the server, where it has several"
    )
    parser.add_argument(
        "--temperature", type=amount, default=0.7, metavar="X", help="of sampling (default: %(default)s)"
    )
    parser.add_argument(
        "--max-tokens",
        type=natural,
        default=2_048,
        metavar="N",
        help="most tokens of a reply; 0 leaves it to the server, as reasoning models want it (default: %(default)s)",
    )
    add_job(parser, "videos", "videos")
    _add_questions(parser)


def _add_questions(parser: argparse.ArgumentParser) -> None:
    defaults = EnhanceOptions
    parser.add_argument(
        "--questions",
        type=positive,
        default=defaults.questions,
        metavar="N",
        help="questions for each video (default: %(default)s)",
    )
    parser.add_argument(
        "--examples",
        type=positive,
        default=defaults.examples,
        metavar="N",
        help="failures that the teacher is shown with a video (default: %(default)s)",
    )
    parser.add_argument(
        "--frames",
        type=positive,
        default=defaults.frames,
        metavar="N",
        help="evenly spaced frames that it is shown (default: %(default)s)",
    )
    parser.add_argument(
        "--max-pixels",
        type=positive,
        default=defaults.max_pixels,
        metavar="N",
        help="most pixels of a frame (default: %(default)s)",
    )
    parser.add_argument(
        "--max-answer-words",
        type=positive,
        default=Rules.words,
        metavar="N",
        help="most words of an answer (default: %(default)s)",
    )
    parser.add_argument(
        "--near",
        type=fraction,
        default=Rules.near,
        metavar="X",
        help="share of words from which two questions about a video are the same (default: %(default)g)",
    )
    parser.add_argument(
        "--data-source",
        default=f"{METHODS['enhance']}-enhanced",
        metavar="NAME",
        help="data_source of the new rows (default: %(default)s)",
    )
    parser.add_argument(
        "--draw", type=natural, default=0, metavar="SEED", help="of the choice of examples (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Enhance.

    Args:
        arguments: What :func:`add_arguments` reads.

    Returns:
        Exit status: 0, 1 when a video couldn't be asked about or no row came out, 2 when nothing could start.
    """
    return run_job(_enhance, arguments)


def _enhance(arguments: argparse.Namespace) -> Finished:
    teacher = server_options(
        arguments, arguments.teacher, arguments.teacher_name, arguments.temperature, arguments.max_tokens
    )
    return enhance(
        EnhanceOptions(
            job=job_options(arguments),
            teacher=teacher,
            failures=tuple(arguments.failures),
            videos=tuple(arguments.videos),
            data_source=arguments.data_source,
            existing=tuple(arguments.existing),
            questions=arguments.questions,
            examples=arguments.examples,
            frames=arguments.frames,
            max_pixels=arguments.max_pixels,
            rules=Rules(arguments.max_answer_words, arguments.near),
            draw=arguments.draw,
        )
    )
