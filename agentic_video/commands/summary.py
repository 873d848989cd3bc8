"""Write the summary of a run's folder again: its curve, its figures and some of its episodes."""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True)
class SummaryArguments:
    """The run."""

    folder: Positional[Path]
    """folder of a run, outputs/<recipe>-<profile>/run-NNN"""


def run(options: SummaryArguments) -> int:
    """Write and print the summary; returns the exit status."""
    from agentic_video.report.losses import LOSSES, write_losses
    from agentic_video.report.metrics import load_metrics
    from agentic_video.report.summary import read_record, write_summary

    folder = options.folder.resolve()
    read_record(folder)
    trained = any(key in values for values in load_metrics(folder)[0].values() for key in LOSSES)
    print(write_losses(folder) if trained else write_summary(folder))
    return 0
