"""Comparison of several evaluations of the same questions: accuracies, and differences question by question."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentic_video.evaluation.published import PublishedScore
from agentic_video.evaluation.report import accuracy
from agentic_video.evaluation.results import SETTINGS_FILE, Key, finished, key_of, read_json, read_settings
from agentic_video.evaluation.suites import ACCURACY, headline
from agentic_video.evaluation.tables import percent, table
from agentic_video.types.record import Record, RecordError
from agentic_video.utils.errors import SetupError
from agentic_video.utils.standard_error import PairedDifference, paired_difference
from agentic_video.utils.workdir import write_whole


@dataclass(frozen=True)
class EvalRun:
    """A finished evaluation."""

    name: str  # as the comparison calls it
    records: tuple[Record, ...]  # its episodes
    published: PublishedScore | None = None  # the paper's number for it, where there is one
    problem: str = ""  # why there are no episodes; empty where there are
    rule: str = ""  # by what it was graded; empty where unknown
    counted: int | None = None  # episodes that its report counts; None where it has none, or not for these episodes
    left_out: tuple[str, ...] = ()  # a message for each line of its files that is no record


def read_run(folder: Path, name: str = "", published: PublishedScore | None = None) -> EvalRun:
    """The episodes of an evaluation's folder."""
    if not (folder / SETTINGS_FILE).is_file():
        raise SetupError(f"{folder}: no evaluation there (no {SETTINGS_FILE}); name the folders of evaluations")
    try:
        records, left_out = finished(folder)
    except RecordError as error:
        raise SetupError(str(error)) from None
    if not records:
        first = f"; {len(left_out)} lines are no records, the first: {left_out[0]}" if left_out else ""
        raise SetupError(f"{folder}: holds no episode yet{first}")
    return EvalRun(
        name or folder.name,
        tuple(records),
        published,
        rule=_rule_of(read_settings(folder)),
        counted=read_json(folder / "report.json").get("episodes"),
        left_out=tuple(left_out),
    )


def _rule_of(settings: Mapping[str, Any]) -> str:
    """By what a system grades, as an evaluation's settings have it: its class, and its rule for multiple choice."""
    system = settings.get("system")
    if not isinstance(system, Mapping) or "class" not in system:
        return ""
    return f"{system['class']} {system.get('answer_match', '')}".strip()


def comparison(runs: Sequence[EvalRun]) -> dict[str, Any]:
    """Figures of several runs: each one's accuracy over what it played, and its paired difference to the first.

    Accuracies are shares from 0 to 1, by each system's own rule (``mean``) and by the shared rule for multiple choice
    (``robust``). A difference is over the questions that both runs have graded: by the shared rule where all are
    multiple choice, else by each system's own. Its standard error is clustered by video."""
    first = next((run for run in runs if run.records), None)
    rows = []
    for run in runs:
        row: dict[str, Any] = {"name": run.name, "problem": run.problem, **accuracy(run.records)}
        row["robust"] = accuracy(run.records, "acc_robust")["mean"]
        row["headline"] = asdict(headline(run.records))
        row["rule"] = run.rule
        row["not_in_report"] = 0 if run.counted is None else max(0, len(run.records) - run.counted)
        row["left_out"] = list(run.left_out)
        frames = [record.rewards["frames"] for record in run.records if "frames" in record.rewards]
        row["frames"] = sum(frames) / len(frames) if frames else None
        row["published"] = None if run.published is None else asdict(run.published)
        row["difference"], row["difference_by"] = None, None
        if first and run.records and run is not first:
            grade = _compared_by(run, first)
            row["difference"], row["difference_by"] = asdict(_difference(run, first, grade)), grade
        rows.append(row)
    return {"compared_with": first.name if first else None, "runs": rows}


def _compared_by(run: EvalRun, other: EvalRun) -> str:
    """The grade by which two runs are compared: the shared one where each question that both have has it in both."""
    shared = _grades(run, "acc").keys() & _grades(other, "acc").keys()
    robust = _grades(run, "acc_robust").keys() & _grades(other, "acc_robust").keys()
    return "acc_robust" if robust and shared <= robust else "acc"


def _difference(run: EvalRun, other: EvalRun, grade: str) -> PairedDifference:
    videos = {key_of(record.qa): record.qa.video for record in (*other.records, *run.records)}
    return paired_difference(_grades(run, grade), _grades(other, grade), videos)


def _grades(run: EvalRun, grade: str) -> dict[Key, float]:
    return {key_of(record.qa): record.rewards[grade] for record in run.records if grade in record.rewards}


def comparison_text(title: str, result: Mapping[str, Any]) -> str:
    """A comparison as Markdown."""
    runs = result["runs"]
    scored = any(row["headline"]["name"] != ACCURACY for row in runs if row["episodes"])
    rows = []
    for row in runs:
        paper, difference, head = row["published"], row["difference"], row["headline"]
        cells = {
            "run": row["name"],
            "questions": row["episodes"],
            "accuracy %": percent(row["mean"]),
            "standard error": percent(row["error"]),
            "robust %": percent(row["robust"]),
            "frames": "-" if row["frames"] is None else f"{row['frames']:.1f}",
            **({"score": f"{head['name']} {percent(head['mean'])}"} if scored else {}),
            "published %": "-" if paper is None or head["problem"] else f"{paper['accuracy']:.1f}",
            "difference": _signed(difference),
            "better": "-" if difference is None else difference["better"],
            "worse": "-" if difference is None else difference["worse"],
        }
        rows.append(cells)
    lines = [f"# {title}", "", *table(list(rows[0]), (list(cells.values()) for cells in rows))]
    if scored:
        lines += ["", "Published numbers are comparable with the score, not with the accuracy over all questions."]
    unlike = [row for row in runs if row["published"] and row["headline"]["problem"] and row["episodes"]]
    lines += [f"\n{row['name']}: no published number is comparable: {row['headline']['problem']}." for row in unlike]
    if any(row["difference"] for row in runs):
        lines += [
            "",
            f"Differences in points to {result['compared_with']}, over the questions that both have graded, with their "
            "standard error; better and worse: on how many of them. All errors are clustered by video.",
            *_ruled(result),
        ]
    for row in runs:
        if row["left_out"]:
            lines += ["", left_out_text(row["name"], row["left_out"])]
        if row["not_in_report"]:
            lines += [
                "",
                f"{row['name']}: {row['not_in_report']} of these episodes aren't in its report (rows were taken out of "
                "the data, or --limit was lowered); they count here.",
            ]
    if failed := [row for row in runs if row["problem"]]:
        lines += ["", "Not evaluated:", "", *(f"- {row['name']}: {row['problem']}" for row in failed)]
    return "\n".join(lines) + "\n"


def left_out_text(name: str, left_out: Sequence[str]) -> str:
    """A note on lines of a run's files that are no records."""
    lines = "1 line is" if len(left_out) == 1 else f"{len(left_out)} lines are"
    return f"{name}: {lines} left out; the first: {left_out[0]}"


def _ruled(result: Mapping[str, Any]) -> list[str]:
    """By which rules the differences are, where that isn't one."""
    compared = [row for row in result["runs"] if row["difference"]]
    lines = []
    if robust := [row["name"] for row in compared if row["difference_by"] == "acc_robust"]:
        which = "Differences are" if len(robust) == len(compared) else f"Those of {', '.join(robust)} are"
        lines.append(
            f"{which} by the shared rule for multiple choice, as robust % is; accuracy % is by each run's own."
        )
    first = next(row for row in result["runs"] if row["name"] == result["compared_with"])
    for row in compared:
        if row["difference_by"] == "acc" and row["rule"] != first["rule"]:
            rules = f"{row['rule'] or 'unknown'}; {first['rule'] or 'unknown'}"
            lines.append(
                f"Warning: {row['name']} and {first['name']} are graded by rules of their own ({rules}): their "
                "difference may be one of rules."
            )
    return lines


def _signed(difference: Mapping[str, Any] | None) -> str:
    if difference is None or difference["difference"] is None:
        return "-"
    error = "" if difference["error"] is None else f" ± {100 * difference['error']:.1f}"
    return f"{100 * difference['difference']:+.1f}{error}"


def write_comparison(folder: Path, title: str, runs: Sequence[EvalRun]) -> str:
    """Write ``comparison.json`` and ``comparison.md`` into a folder."""
    result = comparison(runs)
    text = comparison_text(title, result)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "comparison.json", [json.dumps(result, indent=2) + "\n"])
    write_whole(folder / "comparison.md", [text])
    return text
