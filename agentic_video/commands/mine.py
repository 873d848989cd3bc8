"""The questions at which a run's agent fails, from its recorded episodes.

    agentic-video mine outputs/eva-cluster/run-001 --below 0.5 --out mined.jsonl

Each question is one row, which GRPO reads as it is; ``extra_info.mined`` says how often the agent was right and what
else it answered. ``agentic-video enhance`` shows them to a teacher. No model is asked.
"""

import argparse

from agentic_video.commands.numbers import fraction, positive
from agentic_video.commands.paths import file_to_write
from agentic_video.commands.records import add_from_step, add_records
from agentic_video.synthesis.mine import MineOptions, mine

TAKES_OVERRIDES = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video mine``."""
    defaults = MineOptions
    add_records(parser)
    parser.add_argument(
        "--out", type=file_to_write, required=True, metavar="FILE", help="file of rows to write: .jsonl"
    )
    parser.add_argument(
        "--below",
        type=fraction,
        default=defaults.below,
        metavar="X",
        help="mean accuracy below which a question counts as failed (default: %(default)g)",
    )
    parser.add_argument(
        "--right-from",
        type=fraction,
        default=defaults.right_from,
        metavar="X",
        help="grade below which a single answer is wrong (default: %(default)g)",
    )
    parser.add_argument(
        "--min-episodes",
        type=positive,
        default=defaults.min_episodes,
        metavar="N",
        help="leave out questions with fewer graded episodes (default: %(default)s)",
    )
    add_from_step(parser, defaults.from_step)
    parser.add_argument(
        "--limit", type=positive, metavar="N", help="only the N least accurate questions (default: all)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Mine.

    Args:
        arguments: What :func:`add_arguments` reads.

    Returns:
        Exit status: 0, 1 when no question is failed, 2 when there is nothing to read.
    """
    options = MineOptions(
        records=tuple(arguments.records),
        out=arguments.out,
        below=arguments.below,
        right_from=arguments.right_from,
        min_episodes=arguments.min_episodes,
        from_step=arguments.from_step,
        limit=arguments.limit,
    )
    mined = mine(options)
    rows = mined.written
    print(f"{mined.episodes:,} episodes, {mined.failed:,} questions failed, {len(rows):,} written to {options.out}")
    for reason, count in sorted(mined.left_out.items()):
        print(f"  left out: {count:,} {reason}")
    if rows:
        print(f"  mean accuracy of those written: {100 * sum(one.accuracy for one in rows) / len(rows):.1f} %")
    return 0 if rows else 1
