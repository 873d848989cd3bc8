"""Write the summary of a run's folder again: its curve, its figures and some of its episodes."""

import argparse
from pathlib import Path

from agentic_video.systems.registry import SYSTEMS

HELP = "write the summary of a run's folder again"
TAKES_OVERRIDES = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument of ``agentic-video summary``."""
    parser.add_argument("folder", type=Path, help=f"e.g. outputs/{next(iter(SYSTEMS))}-laptop/run-001")


def run(arguments: argparse.Namespace) -> int:
    """Write and print the summary."""
    from agentic_video.report.summary import write_summary

    print(write_summary(arguments.folder.resolve()))
    return 0
