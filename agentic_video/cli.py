"""The ``agentic-video`` command."""

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; its exit status."""
    parser = argparse.ArgumentParser(prog="agentic-video", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="say what this machine and environment have, and what is missing")
    summary = commands.add_parser("summary", help="write the summary of a run's folder again")
    summary.add_argument("folder", help="e.g. outputs/videozoomer-laptop/run-001")
    known = parser.parse_args(arguments)
    if known.command == "doctor":
        from agentic_video.doctor import report

        return report()
    from pathlib import Path

    from agentic_video.report.summary import write_summary

    print(write_summary(Path(known.folder).resolve()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
