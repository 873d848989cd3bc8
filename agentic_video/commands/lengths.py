"""Measure trajectories: tokens and calls.

    agentic-video lengths kept.jsonl outputs/videozoomer-eval/mlvu_dev/agent --out lengths.json

VideoZoomer draws both for its cold-start data (Figure 7). No model is asked.
"""

import argparse

from agentic_video.commands.paths import file_to_write
from agentic_video.commands.records import add_records
from agentic_video.synthesis.lengths import LengthOptions, measure_lengths, table

TAKES_OVERRIDES = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video lengths``."""
    add_records(parser)
    parser.add_argument("--out", type=file_to_write, metavar="FILE", help="write the numbers to this JSON file too")


def run(arguments: argparse.Namespace) -> int:
    """Report.

    Args:
        arguments: What :func:`add_arguments` reads.

    Returns:
        Exit status: 0, or 2 when there is nothing to read.
    """
    print(table(measure_lengths(LengthOptions(tuple(arguments.records), arguments.out))))
    return 0
