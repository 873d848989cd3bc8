"""Several evaluations of the same questions beside each other: accuracies, and differences question by question."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentic_video.evaluation.published import Published
from agentic_video.evaluation.report import accuracy, percent, table
from agentic_video.evaluation.results import SETTINGS_FILE, Key, finished, key_of
from agentic_video.types.record import Record
from agentic_video.utils.errors import SetupError
from agentic_video.utils.journal import write_whole
from agentic_video.utils.standard_error import PairedDifference, paired_difference


@dataclass(frozen=True)
class Run:
    """A finished evaluation.

    Attributes:
        name: As the comparison calls it.
        records: Its episodes.
        published: The paper's number for it, where there is one.
        problem: Why there are no episodes; empty where there are.
    """

    name: str
    records: tuple[Record, ...]
    published: Published | None = None
    problem: str = ""


def read_run(folder: Path, name: str = "", published: Published | None = None) -> Run:
    """The episodes of an evaluation's folder.

    Args:
        name: None given: the folder's.

    Raises:
        SetupError: It is no evaluation's folder, or holds no episode yet.
    """
    if not (folder / SETTINGS_FILE).is_file():
        raise SetupError(f"{folder}: no evaluation there (no {SETTINGS_FILE}); name the folders of evaluations")
    records, _ = finished(folder)
    if not records:
        raise SetupError(f"{folder}: holds no episode yet")
    return Run(name or folder.name, tuple(records), published)


def comparison(runs: Sequence[Run]) -> dict[str, Any]:
    """Figures of several runs: each one's accuracy over what it played, and its paired difference to the first.

    Accuracies are shares from 0 to 1, by each system's own rule. A difference is over the questions that both runs have
    graded; its standard error is clustered by video.

    Args:
        runs: The one to compare with comes first.
    """
    first = next((run for run in runs if run.records), None)
    rows = []
    for run in runs:
        row: dict[str, Any] = {"name": run.name, "problem": run.problem, **accuracy(run.records)}
        frames = [record.rewards["frames"] for record in run.records if "frames" in record.rewards]
        row["frames"] = sum(frames) / len(frames) if frames else None
        row["published"] = None if run.published is None else asdict(run.published)
        row["difference"] = asdict(_difference(run, first)) if first and run.records and run is not first else None
        rows.append(row)
    return {"compared_with": first.name if first else None, "runs": rows}


def _difference(run: Run, other: Run) -> PairedDifference:
    videos = {key_of(record.qa): record.qa.video for record in (*other.records, *run.records)}
    return paired_difference(_grades(run), _grades(other), videos)


def _grades(run: Run) -> dict[Key, float]:
    return {key_of(record.qa): record.rewards["acc"] for record in run.records if "acc" in record.rewards}


def comparison_text(title: str, result: Mapping[str, Any]) -> str:
    """A comparison as Markdown.

    Args:
        title: Its first line.
        result: See :func:`comparison`.
    """
    header = (
        "run",
        "questions",
        "accuracy %",
        "standard error",
        "frames",
        "published %",
        "difference",
        "better",
        "worse",
    )
    rows = []
    for row in result["runs"]:
        paper, difference = row["published"], row["difference"]
        rows.append(
            (
                row["name"],
                row["episodes"],
                percent(row["mean"]),
                percent(row["error"]),
                "-" if row["frames"] is None else f"{row['frames']:.1f}",
                "-" if paper is None else f"{paper['accuracy']:.1f}",
                _signed(difference),
                "-" if difference is None else difference["better"],
                "-" if difference is None else difference["worse"],
            )
        )
    lines = [f"# {title}", "", *table(header, rows)]
    if any(row["difference"] for row in result["runs"]):
        lines += [
            "",
            f"Differences in points to {result['compared_with']}, over the questions that both have graded, with their "
            "standard error; better and worse: on how many of them. All errors are clustered by video.",
        ]
    if failed := [row for row in result["runs"] if row["problem"]]:
        lines += ["", "Not evaluated:", "", *(f"- {row['name']}: {row['problem']}" for row in failed)]
    return "\n".join(lines) + "\n"


def _signed(difference: Mapping[str, Any] | None) -> str:
    if difference is None or difference["difference"] is None:
        return "-"
    error = "" if difference["error"] is None else f" ± {100 * difference['error']:.1f}"
    return f"{100 * difference['difference']:+.1f}{error}"


def write_comparison(folder: Path, title: str, runs: Sequence[Run]) -> str:
    """Write ``comparison.json`` and ``comparison.md`` into a folder.

    Returns:
        The text.
    """
    result = comparison(runs)
    text = comparison_text(title, result)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "comparison.json", [json.dumps(result, indent=2) + "\n"])
    write_whole(folder / "comparison.md", [text])
    return text
