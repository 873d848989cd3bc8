"""Compare evaluations of the same questions: accuracies, and paired differences with their standard errors.

agentic-video compare outputs/videozoomer-eval/mlvu_dev/agent outputs/videozoomer-eval/mlvu_dev/no-tools
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from agentic_video.utils.errors import SetupError
from agentic_video.utils.option_types import OutputFolder


@dataclass(frozen=True)
class CompareArguments:
    """Evaluations to compare."""

    folders: Positional[tuple[Path, ...]]
    """folders of evaluations; the others are compared with the first"""
    out: OutputFolder | None = None
    """write comparison.md and comparison.json there as well"""


def run(options: CompareArguments) -> int:
    """Print the comparison; returns the exit status."""
    from agentic_video.evaluation.compare import comparison, comparison_text, left_out_text, read_run, write_comparison
    from agentic_video.evaluation.results import key_of

    folders = [folder.resolve() for folder in options.folders]
    if len(set(folders)) < 2:
        raise SetupError("compare needs the folders of two evaluations or more")
    names = [folder.name for folder in folders]
    # the parent's name tells folders of the same name apart
    runs = [
        read_run(folder, folder.name if names.count(folder.name) == 1 else f"{folder.parent.name}/{folder.name}")
        for folder in folders
    ]
    for read in runs:
        if read.left_out:
            print(left_out_text(read.name, read.left_out), file=sys.stderr)
    first, *others = [{key_of(record.qa) for record in read.records} for read in runs]
    if first.isdisjoint(set().union(*others)):
        raise SetupError(
            f"{options.folders[0]}: no question (data_source and id) in common with "
            f"{', '.join(map(str, options.folders[1:]))}; name evaluations of the same rows"
        )
    if options.out is None:
        print(comparison_text("Comparison", comparison(runs)), end="")
    else:
        print(write_comparison(options.out, "Comparison", runs), end="")
    return 0
