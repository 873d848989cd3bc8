"""Options of the commands that read recorded episodes."""

import argparse

from agentic_video.commands.numbers import natural
from agentic_video.commands.paths import path


def add_records(parser: argparse.ArgumentParser) -> None:
    """Add ``records``: where the episodes are."""
    parser.add_argument(
        "records", nargs="+", type=path, metavar="PATH", help="files of records, or folders of runs or evaluations"
    )


def add_from_step(parser: argparse.ArgumentParser, default: int) -> None:
    """Add ``--from-step``: which of a run's episodes count.

    Args:
        parser: Of the command.
        default: The first step; 0 is all.
    """
    parser.add_argument(
        "--from-step",
        type=natural,
        default=default,
        metavar="STEP",
        help="only episodes from this step of the run on (provenance.step) (default: all)",
    )
