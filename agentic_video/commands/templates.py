"""Which of FrameThinker's reasoning templates do trajectories follow?

    agentic-video templates outputs/framethinker-laptop/run-001 records.jsonl --out templates.json

The five templates are those of the paper's process-supervised data (appendix F.2); the sequence of an episode's actions
decides. No model is asked.
"""

import argparse

from agentic_video.commands.paths import file_to_write
from agentic_video.commands.records import add_records
from agentic_video.synthesis.templates import TemplateOptions, count_templates, table

TAKES_OVERRIDES = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video templates``."""
    add_records(parser)
    parser.add_argument("--out", type=file_to_write, metavar="FILE", help="write the numbers to this JSON file too")


def run(arguments: argparse.Namespace) -> int:
    """Report.

    Args:
        arguments: What :func:`add_arguments` reads.

    Returns:
        Exit status: 0, or 2 when there is nothing to read.
    """
    print(table(count_templates(TemplateOptions(tuple(arguments.records), arguments.out))))
    return 0
