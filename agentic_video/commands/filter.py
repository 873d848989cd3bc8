"""The recorded episodes that are worth imitating, as records for SFT: right, and looked at the right place.

    agentic-video filter outputs/longvt-cluster/run-001 --out data/rollouts.jsonl

An episode is kept when its answer is right and its last look overlaps a gold window of its row (``windows``) by 0.3 and
more, as for LongVT's RFT. No model is asked.
"""

import argparse

from agentic_video.commands.numbers import fraction, positive
from agentic_video.commands.paths import file_to_write
from agentic_video.commands.records import add_from_step, add_records
from agentic_video.synthesis.filter import FilterOptions, filter_episodes

TAKES_OVERRIDES = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video filter``."""
    defaults = FilterOptions
    add_records(parser)
    parser.add_argument(
        "--out", type=file_to_write, required=True, metavar="FILE", help="file of records to write: .jsonl"
    )
    parser.add_argument(
        "--min-acc",
        type=fraction,
        default=defaults.min_acc,
        metavar="X",
        help="least accuracy of the answer (default: %(default)g)",
    )
    parser.add_argument(
        "--min-iou",
        type=fraction,
        default=defaults.min_iou,
        metavar="X",
        help="least overlap, intersection over union, of the last look with a gold window; 0: windows aren't looked at "
        "(default: %(default)g)",
    )
    add_from_step(parser, defaults.from_step)
    parser.add_argument(
        "--per-question", type=positive, metavar="N", help="most episodes of a question, the first ones (default: all)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Filter.

    Args:
        arguments: What :func:`add_arguments` reads.

    Returns:
        Exit status: 0, 1 when no episode is kept, 2 when there is nothing to read.
    """
    options = FilterOptions(
        records=tuple(arguments.records),
        out=arguments.out,
        min_acc=arguments.min_acc,
        min_iou=arguments.min_iou,
        from_step=arguments.from_step,
        per_question=arguments.per_question,
    )
    found = filter_episodes(options)
    print(
        f"{found.episodes:,} episodes, {found.kept:,} kept, on {found.questions:,} questions, written to {options.out}"
    )
    for reason, count in sorted(found.left_out.items()):
        print(f"  left out: {count:,} {reason}")
    return 0 if found.kept else 1
