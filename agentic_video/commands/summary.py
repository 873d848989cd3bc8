"""Write the summary of a run's folder again: its curve, its figures and some of its episodes."""

import argparse
from pathlib import Path

from agentic_video.commands.paths import path
from agentic_video.systems.registry import SYSTEMS

TAKES_OVERRIDES = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument of ``agentic-video summary``."""
    parser.add_argument(
        "folder", type=path, metavar="RUN", help=f"folder of a run, e.g. outputs/{next(iter(SYSTEMS))}-laptop/run-001"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write and print the summary.

    Raises:
        SetupError: The folder isn't that of a run.
    """
    from agentic_video.report.losses import LOSSES, write_losses
    from agentic_video.report.metrics import load_metrics
    from agentic_video.report.summary import read_record, write_summary

    folder: Path = arguments.folder.resolve()
    read_record(folder)
    trained = any(key in values for values in load_metrics(folder)[0].values() for key in LOSSES)
    print(write_losses(folder) if trained else write_summary(folder))
    return 0
