"""Compare evaluations of the same questions: accuracies, and paired differences with their standard errors.

agentic-video compare outputs/videozoomer-eval/mlvu_dev/agent outputs/videozoomer-eval/mlvu_dev/no-tools
"""

import argparse
import sys
from pathlib import Path

from agentic_video.commands.paths import folder_to_write, path

TAKES_OVERRIDES = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``agentic-video compare``."""
    parser.add_argument(
        "folders",
        nargs="+",
        type=path,
        metavar="FOLDER",
        help="folders of evaluations; the others are compared with the first",
    )
    parser.add_argument(
        "--out", type=folder_to_write, metavar="FOLDER", help="write comparison.md and comparison.json there as well"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison.

    Raises:
        SetupError: A folder holds no evaluation or can't be read, there is only one, or none shares a question with
            the first.
    """
    from agentic_video.evaluation.compare import comparison, comparison_text, left_out_text, read_run, write_comparison
    from agentic_video.evaluation.results import key_of
    from agentic_video.utils.errors import SetupError

    folders: list[Path] = [folder.resolve() for folder in arguments.folders]
    if len(set(folders)) < 2:
        raise SetupError("compare needs the folders of two evaluations or more")
    names = [folder.name for folder in folders]
    # the parent's name tells folders of the same name apart
    runs = [
        read_run(folder, folder.name if names.count(folder.name) == 1 else f"{folder.parent.name}/{folder.name}")
        for folder in folders
    ]
    for one in runs:
        if one.left_out:
            print(left_out_text(one.name, one.left_out), file=sys.stderr)
    first, *others = [{key_of(record.qa) for record in run.records} for run in runs]
    if first.isdisjoint(set().union(*others)):
        raise SetupError(
            f"{arguments.folders[0]}: no question (data_source and id) in common with "
            f"{', '.join(map(str, arguments.folders[1:]))}; name evaluations of the same rows"
        )
    if arguments.out is None:
        print(comparison_text("Comparison", comparison(runs)), end="")
    else:
        print(write_comparison(arguments.out, "Comparison", runs), end="")
    return 0
