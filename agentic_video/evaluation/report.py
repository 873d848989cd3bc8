"""The report of an evaluation: figures from finished episodes, as json, as Markdown, and beside the published ones."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentic_video.evaluation.published import published_for
from agentic_video.evaluation.results import Failure
from agentic_video.evaluation.suites import suite_scores
from agentic_video.types.action import Calls
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory

CATEGORY_FIELDS = (
    "categories",
    "category",
    "task_type",
    "question_category",
    "question_type",
    "problem_type",
    "type",
    "kind",
)
"""Fields of ``extra_info`` that name the kind of question; the first that is there counts."""
DURATION_FIELDS = ("duration_name", "duration_bucket", "duration_group", "length", "duration")
"""The same for how long the video is: a name, or seconds. Where a row has none, the video file's own length counts."""
_DURATION_ENDS = (60.0, 300.0, 900.0, 3600.0)
_FPS_ENDS = (1.0, 2.0, 4.0, 8.0)
PER_EPISODE = (
    "frames",
    "visual_tokens",
    "turns",
    "tool_calls",
    "illegal_calls",
    "attempts",
    "prompt_tokens",
    "completion_tokens",
    "seconds",
)
COUNTED = ("turns", "tool_calls")
"""Figures whose values are counted one by one."""


def category_of(qa: VideoQA) -> list[str]:
    """The kinds of question that a row says it is."""
    value = next((qa.extra[name] for name in CATEGORY_FIELDS if qa.extra.get(name) not in (None, "", [])), None)
    if isinstance(value, str):
        return [value]
    return [str(one) for one in value] if isinstance(value, Sequence) else []


def duration_of(qa: VideoQA) -> list[str]:
    """How long the row says that its video is: its own name for that, or a range."""
    value = next((qa.extra[name] for name in DURATION_FIELDS if qa.extra.get(name) not in (None, "")), None)
    if isinstance(value, str):
        return [value]
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return [bucket(float(value), _DURATION_ENDS, " s")]
    return []


def _measured(record: Record) -> list[str]:
    seconds = record.rewards.get("video_seconds")
    return [] if seconds is None else [bucket(seconds, _DURATION_ENDS, " s")]


def bucket(value: float, ends: Sequence[float], unit: str = "") -> str:
    """The range that a positive number is in: ``(1, 2]``, or ``> 8`` beyond the last end."""
    below = 0.0
    for end in ends:
        if value <= end:
            return f"({below:g}, {end:g}]{unit}"
        below = end
    return f"> {below:g}{unit}"


def chosen_fps(trajectory: Trajectory) -> list[float]:
    """The rates that the agent asked for in calls that were carried out, where its tool has one."""
    rates = []
    for turn in trajectory.turns:
        if isinstance(turn.action, Calls) and turn.legal_calls:
            values = [call.arguments.get("fps") for call in turn.action.calls]
            rates += [
                float(value)
                for value in values
                if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
            ]
    return rates


def accuracy(records: Iterable[Record], key: str = "acc") -> dict[str, Any]:
    """Mean of a grade over the records that have it, its standard error (None below two), and their number."""
    values = [record.rewards[key] for record in records if key in record.rewards]
    return {
        "episodes": len(values),
        "mean": statistics.fmean(values) if values else None,
        "error": statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None,
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, least, median, 90th percentile and greatest of at least one value."""
    ordered = sorted(values)
    return {
        "mean": statistics.fmean(ordered),
        "min": ordered[0],
        "median": statistics.median(ordered),
        "p90": ordered[math.ceil(0.9 * len(ordered)) - 1],
        "max": ordered[-1],
    }


def figures(records: Sequence[Record], failures: Sequence[Failure] = ()) -> dict[str, Any]:
    """All figures of an evaluation.

    Accuracies are shares from 0 to 1: ``official`` by the system's own rule, ``robust`` by the shared rule for multiple
    choice. Questions that couldn't be played count in neither; ``official_failures_wrong`` counts them as wrong.
    """
    official = accuracy(records)
    graded = official["episodes"]
    groups: dict[str, dict[str, list[Record]]] = {"data_source": {}, "category": {}, "duration": {}}
    for record in records:
        names = {
            "data_source": [record.qa.data_source],
            "category": category_of(record.qa),
            "duration": duration_of(record.qa) or _measured(record),
        }
        for grouping, found in names.items():
            for name in found:
                groups[grouping].setdefault(name, []).append(record)
    by = {
        grouping: {
            name: {"official": accuracy(members), "robust": accuracy(members, "acc_robust")}
            for name, members in sorted(group.items())
        }
        for grouping, group in groups.items()
    }
    means = [group["official"]["mean"] for group in by["category"].values() if group["official"]["mean"] is not None]
    rates = [rate for record in records for rate in chosen_fps(record.trajectory)]
    return {
        "episodes": len(records),
        "failed": len(failures),
        "ungraded": len(records) - graded,
        "official": official,
        "robust": accuracy(records, "acc_robust"),
        "official_failures_wrong": (official["mean"] * graded / (graded + len(failures)) if graded else None),
        "official_mean_over_categories": statistics.fmean(means) if means else None,
        "suites": suite_scores(records),
        "by": by,
        "per_episode": {
            name: spread(values)
            for name in PER_EPISODE
            if (values := [record.rewards[name] for record in records if name in record.rewards])
        },
        "distribution": {
            name: _counted(int(record.rewards[name]) for record in records if name in record.rewards)
            for name in COUNTED
        },
        "chosen_fps": _counted(
            (bucket(rate, _FPS_ENDS) for rate in rates),
            order=[bucket(end, _FPS_ENDS) for end in (*_FPS_ENDS, math.inf)],
        ),
        "ends": _counted((record.trajectory.end.value for record in records), order=[end.value for end in EndReason]),
    }


def _counted(values: Iterable[Any], order: Sequence[Any] | None = None) -> dict[str, int]:
    counts = Counter(values)
    return {str(value): counts[value] for value in (order or sorted(counts)) if counts[value]}


def percent(value: float | None) -> str:
    """A share as percent with one decimal."""
    return "-" if value is None else f"{100 * value:.1f}"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """A Markdown table; columns are padded, so that a terminal shows it as well."""
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def report_text(title: str, result: Mapping[str, Any], benchmark: str, failures: Sequence[Failure] = ()) -> str:
    """The report as Markdown.

    Args:
        title: Its first line.
        result: See :func:`figures`.
        benchmark: Published numbers of this benchmark are shown beside.
        failures: Some of them are named.
    """
    official, robust = result["official"], result["robust"]
    lines = [f"# {title}", ""]
    rows: list[tuple[Any, ...]]
    error = f" (standard error {percent(official['error'])})" if official["error"] is not None else ""
    lines.append(
        f"Accuracy {percent(official['mean'])} %{error} on {official['episodes']} episodes; by the robust rule "
        f"{percent(robust['mean'])} % on {robust['episodes']}."
    )
    if result["official_mean_over_categories"] is not None:
        lines.append(f"Mean over categories {percent(result['official_mean_over_categories'])} %.")
    if result["ungraded"]:
        lines.append(f"{result['ungraded']} episodes could not be graded: set agentic_video.judge.base_url and .model.")
    if failures:
        lines.append(
            f"{len(failures)} questions could not be played (the same command tries them again); with them as wrong "
            f"{percent(result['official_failures_wrong'])} %."
        )
        lines += ["", *(f"- {source} {name}: {error[:200]}" for (source, name), error in _named(failures))]
    for grouping, groups in result["by"].items():
        if groups and not (grouping == "data_source" and len(groups) == 1):
            rows = [
                (
                    name,
                    group["official"]["episodes"],
                    percent(group["official"]["mean"]),
                    percent(group["robust"]["mean"]),
                )
                for name, group in groups.items()
            ]
            lines += ["", *table((grouping.replace("_", " "), "episodes", "accuracy %", "robust %"), rows)]
    for source, scores in result["suites"].items():
        lines += ["", *table((source, "%"), [(name, percent(value)) for name, value in scores.items()])]
    rows = [
        (name.replace("_", " "), *(f"{values[key]:.4g}" for key in ("mean", "min", "median", "p90", "max")))
        for name, values in result["per_episode"].items()
    ]
    if rows:
        lines += ["", *table(("per episode", "mean", "min", "median", "90 %", "max"), rows)]
    shares = {
        "turns": result["distribution"]["turns"],
        "tool calls": result["distribution"]["tool_calls"],
        "fps chosen": result["chosen_fps"],
        "ends": result["ends"],
    }
    rows = [(name, _shares(counts)) for name, counts in shares.items() if counts]
    if rows:
        lines += ["", *table(("distribution", "share of episodes (of calls, for fps)"), rows)]
    beside = published_for(benchmark)
    if beside:
        frames = result["per_episode"].get("frames")
        rows = [("this run", "", percent(official["mean"]), f"{frames['mean']:.1f}" if frames else "-", "", "")]
        rows += [
            (
                row.model,
                row.paper,
                f"{row.accuracy:.1f}",
                "-" if row.frames is None else f"{row.frames:g}",
                row.table,
                "; ".join(filter(None, ("" if row.calls is None else f"at most {row.calls} calls", row.note))),
            )
            for row in beside
        ]
        lines += ["", f"Published on {benchmark}:", ""]
        lines += table(("model", "paper", "accuracy %", "frames", "where", "note"), rows)
    return "\n".join(lines) + "\n"


def _named(failures: Sequence[Failure], most: int = 10) -> list[tuple[tuple[str, str], str]]:
    return [(failure.key, " ".join(failure.error.split())) for failure in failures[:most]]


def _shares(counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    return ", ".join(f"{name}: {100 * count / total:.1f} %" for name, count in counts.items())


def write_report(
    folder: Path, title: str, benchmark: str, records: Sequence[Record], failures: Sequence[Failure] = ()
) -> tuple[dict[str, Any], str]:
    """Write ``report.json`` and ``report.md`` into an evaluation's folder.

    Returns:
        The figures, and the text.
    """
    result = figures(records, failures)
    text = report_text(title, result, benchmark, failures)
    (folder / "report.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(text, encoding="utf-8")
    return result, text
