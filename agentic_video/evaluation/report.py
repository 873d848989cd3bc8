"""The report of an evaluation: figures from finished episodes, as json, as Markdown, and beside the published ones."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentic_video.evaluation.fitting import ROOM, remedy, unfit
from agentic_video.evaluation.grounding import Measured, grounding_values
from agentic_video.evaluation.published import EMBEDDED, Published, published_for
from agentic_video.evaluation.results import Failure, LeftOut
from agentic_video.evaluation.suites import ACCURACY, headline, suite_figures
from agentic_video.types.action import Action, Calls
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, recorded_frames
from agentic_video.utils.journal import write_whole
from agentic_video.utils.standard_error import clustered_error

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
    "forced",
    "prompt_tokens",
    "completion_tokens",
    "seconds",
)
COUNTED = ("turns", "tool_calls")
"""Figures whose values are counted one by one."""
TURN_ARGUMENTS = ("nframes", "resize", "fps")
"""Arguments of calls that are reported by turn."""
MAX_NAMED = 10
"""So many of the questions that weren't played are named; all are counted."""


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


def by_turn(records: Iterable[Record]) -> dict[str, dict[str, dict[str, float]]]:
    """Summarize the n-th turn with frames (EVA's Fig. 9): by its number, the spread over episodes of
    ``frames``, the ``seconds`` from its first frame to its last, the ``width`` of a frame in pixels, and the mean of
    each of :data:`TURN_ARGUMENTS` over the turn's calls."""
    turns: dict[str, dict[str, list[float]]] = {}
    for record in records:
        shown = (turn for turn in record.trajectory.turns if recorded_frames(turn.observation))
        for number, turn in enumerate(shown, start=1):
            frames = recorded_frames(turn.observation)
            times = [frame.time for frame in frames]
            values = {
                "frames": float(len(frames)),
                "seconds": max(times) - min(times),
                "width": statistics.fmean(frame.width for frame in frames),
                **_mean_arguments(turn.action),
            }
            for name, value in values.items():
                turns.setdefault(str(number), {}).setdefault(name, []).append(value)
    return {
        number: {name: {"episodes": len(found), **spread(found)} for name, found in by_name.items()}
        for number, by_name in turns.items()
    }


def _mean_arguments(action: Action) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for call in action.calls if isinstance(action, Calls) else ():
        for name in TURN_ARGUMENTS:
            value = call.arguments.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6:
                found.setdefault(f"argument {name}", []).append(float(value))
    return {name: statistics.fmean(values) for name, values in found.items()}


def accuracy(records: Iterable[Record], key: str = "acc") -> dict[str, Any]:
    """Mean of a grade over the records that have it; see :func:`averaged`."""
    return averaged([(record.rewards[key], record.qa.video) for record in records if key in record.rewards])


def averaged(measured: Sequence[Measured]) -> dict[str, Any]:
    """Mean of episodes' values, its standard error clustered by video (None below two videos), and their number."""
    values = [value for value, _ in measured]
    return {
        "episodes": len(values),
        "mean": statistics.fmean(values) if values else None,
        "error": clustered_error(values, [video for _, video in measured]),
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


def with_unplayed_wrong(found: Mapping[str, Any], ungraded: int, unplayed: int) -> float | None:
    """An accuracy with the questions that weren't played as wrong; None where no episode was graded."""
    total = found["episodes"] + unplayed
    if not total or (ungraded and not found["episodes"]):
        return None
    return (found["mean"] or 0.0) * float(found["episodes"]) / total


def figures(
    records: Sequence[Record], failures: Sequence[Failure] = (), left_out: Sequence[LeftOut] = ()
) -> dict[str, Any]:
    """All figures of an evaluation.

    Accuracies are shares from 0 to 1: ``official`` by the system's own rule, ``robust`` by the shared rule for multiple
    choice. Questions that weren't played count in neither, be it that they failed or that their rows were left out;
    ``official_unplayed_wrong`` and ``robust_unplayed_wrong`` count them as wrong. ``headline`` compares with
    published numbers (see :class:`~agentic_video.evaluation.suites.Headline`); its ``unplayed_wrong`` assumes that what
    wasn't played is spread over tasks like the rest. ``unfit`` counts episodes whose first view fitted no budget."""
    official, robust = accuracy(records), accuracy(records, "acc_robust")
    graded = official["episodes"]
    unplayed = len(failures) + sum(one.asked for one in left_out)
    head = asdict(headline(records))
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
        "asked": len(records) + unplayed,
        "episodes": len(records),
        "failed": len(failures),
        "left_out": {
            "rows": len(left_out),
            "counted_wrong": sum(one.asked for one in left_out),
            "by_reason": _counted(one.reason for one in left_out),
            "first": [one.message for one in left_out[:MAX_NAMED]],
        },
        "videos": len({record.qa.video for record in records}),
        "ungraded": len(records) - graded,
        "hidden": sum(record.qa.hidden for record in records),
        "official": official,
        "robust": robust,
        "official_unplayed_wrong": with_unplayed_wrong(official, len(records) - graded, unplayed),
        # whether a question that wasn't played is multiple choice isn't known where there are others too
        "robust_unplayed_wrong": (
            with_unplayed_wrong(robust, 0, unplayed) if robust["episodes"] == len(records) else None
        ),
        "headline": {**head, "unplayed_wrong": with_unplayed_wrong(head, len(records) - head["episodes"], unplayed)},
        "official_mean_over_categories": statistics.fmean(means) if means else None,
        "suites": suite_figures(records),
        "grounding": {
            source: {name: averaged(values) for name, values in by_name.items()}
            for source, by_name in grounding_values(records).items()
        },
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
        "by_turn": by_turn(records),
        "chosen_fps": _counted(
            (bucket(rate, _FPS_ENDS) for rate in rates),
            order=[bucket(end, _FPS_ENDS) for end in (*_FPS_ENDS, math.inf)],
        ),
        "unfit": _counted(
            (record.trajectory.end.value for record in records if unfit(record)), order=[end.value for end in ROOM]
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
    """The report as Markdown."""
    lines = [f"# {title}", "", _headline(result)]
    if counts := result["unfit"]:
        shown, what = f"{sum(counts.values())} of {result['episodes']}", remedy([EndReason(end) for end in counts])
        lines.append(f"**{shown} first views fitted no budget: no turn, counted as wrong. To play them, {what}.**")
    rows: list[tuple[Any, ...]]
    if (head := result["headline"])["name"] != ACCURACY and head["mean"] is not None:
        error = "" if head["error"] is None else f" (standard error {percent(head['error'])})"
        counted = f"on {_count(head['episodes'], 'episode')}"
        lines.append(f"{head['name']} {percent(head['mean'])} %{error} {counted}: the number to compare with papers.")
    if result["official_mean_over_categories"] is not None:
        lines.append(f"Mean over categories {percent(result['official_mean_over_categories'])} %.")
    if result["hidden"]:
        lines.append(f"The answers to {_count(result['hidden'], 'question')} aren't published: see submission-*.json.")
    if ungraded := result["ungraded"] - result["hidden"]:
        lines.append(
            f"{ungraded} episodes have no grade: the same command asks for it, once agentic_video.judge.base_url and "
            ".model name a judge that answers."
        )
    if failures:
        lines += ["", f"{_count(len(failures), 'question')} could not be played (the same command tries again):", ""]
        lines += [f"- {source} {name}: {error[:200]}" for (source, name), error in _named(failures)]
    lines += _left_out(result["left_out"])
    if result["asked"] > result["episodes"]:
        lines += ["", "What follows is about the questions that were played."]
    for grouping, groups in result["by"].items():
        if groups and not (grouping == "data_source" and len(groups) == 1):
            rows = [
                (
                    name,
                    group["official"]["episodes"],
                    percent(group["official"]["mean"]),
                    percent(group["official"]["error"]),
                    percent(group["robust"]["mean"]),
                )
                for name, group in groups.items()
            ]
            header = (grouping.replace("_", " "), "episodes", "accuracy %", "standard error", "robust %")
            lines += ["", *table(header, rows)]
    for source, scores in result["suites"].items():
        rows = [(name, percent(score["mean"]), percent(score["error"])) for name, score in scores.items()]
        lines += ["", *table((source, "%", "standard error"), rows)]
    for source, by_name in result["grounding"].items():
        rows = [
            (name.replace("_", " "), value["episodes"], percent(value["mean"]), percent(value["error"]))
            for name, value in by_name.items()
        ]
        lines += ["", *table((f"{source}, grounding", "episodes", "%", "standard error"), rows)]
    rows = [
        (name.replace("_", " "), *(f"{values[key]:.4g}" for key in ("mean", "min", "median", "p90", "max")))
        for name, values in result["per_episode"].items()
    ]
    if rows:
        lines += ["", *table(("per episode", "mean", "min", "median", "90 %", "max"), rows)]
    if turns := result["by_turn"]:
        names = list(dict.fromkeys(name for values in turns.values() for name in values))
        rows = [
            (
                number,
                values["frames"]["episodes"],
                *(f"{values[name]['mean']:.4g}" if name in values else "-" for name in names),
            )
            for number, values in turns.items()
        ]
        lines += ["", *table(("look", "episodes", *names), rows)]
    shares = {
        "turns": result["distribution"]["turns"],
        "tool calls": result["distribution"]["tool_calls"],
        "fps chosen": result["chosen_fps"],
        "ends": result["ends"],
    }
    rows = [(name, _shares(counts)) for name, counts in shares.items() if counts]
    if rows:
        lines += ["", *table(("distribution", "share of episodes (of calls, for fps)"), rows)]
    if beside := published_for(benchmark):
        lines += _beside(result, benchmark, beside)
    return "\n".join(lines) + "\n"


def _beside(result: Mapping[str, Any], benchmark: str, beside: Sequence[Published]) -> list[str]:
    """The lines about published numbers: a table, or why this run's number doesn't belong beside them."""
    head = result["headline"]
    problem = "they compare captions by a sentence encoder" if beside[0].benchmark in EMBEDDED else head["problem"]
    if problem:
        return ["", f"The numbers published on {benchmark} aren't shown beside this run's: {problem}."]
    notes = [] if head["name"] == ACCURACY else [head["name"]]
    tokens = next((row.frame_tokens for row in beside if row.frame_tokens), None)
    if tokens and "visual_tokens" in result["per_episode"]:
        papers = ", ".join(dict.fromkeys(row.paper for row in beside if row.frame_tokens))
        notes.append(f"{mean_frames(result, tokens)} frames as {papers} counts them ({tokens} visual tokens each)")
    if (unplayed := result["asked"] - result["episodes"]) > 0:
        strict = percent(head["unplayed_wrong"])
        notes.append(f"{unplayed} of {result['asked']} questions not played; {strict} with them as wrong")
    rows = [("this run", "", percent(head["mean"]), mean_frames(result), "", "; ".join(notes))]
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
    title = ("model", "paper", "accuracy %" if head["name"] == ACCURACY else "%", "frames", "where", "note")
    return ["", f"Published on {benchmark}:", "", *table(title, rows)]


def mean_frames(result: Mapping[str, Any], frame_tokens: int | None = None) -> str:
    """Mean frames of an episode as a table shows them."""
    values = result["per_episode"].get("visual_tokens" if frame_tokens else "frames")
    return f"{values['mean'] / (frame_tokens or 1):.1f}" if values else "-"


def _headline(result: Mapping[str, Any]) -> str:
    """The accuracies. Where something wasn't played, the one that counts it as wrong stands beside in the same line, so
    that nobody copies the other alone."""
    official, robust, asked = result["official"], result["robust"], result["asked"]
    error = (
        f" (standard error {percent(official['error'])}, by {result['videos']} videos)"
        if official["error"] is not None
        else ""
    )
    of_all, strict, robust_strict = "", "", ""
    if asked > result["episodes"]:
        of_all = f" of {_count(asked, 'question')}"
        strict = f", {percent(result['official_unplayed_wrong'])} % with those that were not played as wrong"
        if result["robust_unplayed_wrong"] is not None:
            robust_strict = f", {percent(result['robust_unplayed_wrong'])} % with those as wrong"
    return (
        f"Accuracy {percent(official['mean'])} %{error} on {_count(official['episodes'], 'episode')}{of_all}{strict}; "
        f"by the robust rule {percent(robust['mean'])} % on {robust['episodes']}{robust_strict}."
    )


def _left_out(rows: Mapping[str, Any]) -> list[str]:
    """The lines about rows that are no questions."""
    if not rows["rows"]:
        return []
    reasons = ", ".join(f"{reason}: {count}" for reason, count in rows["by_reason"].items())
    uncounted = rows["rows"] - rows["counted_wrong"]
    note = f"; {uncounted} of them not counted as wrong (beyond --limit, or the same row again)" if uncounted else ""
    lines = ["", f"{_count(rows['rows'], 'row')} of the data files left out ({reasons}){note}:", ""]
    return [*lines, *(f"- {' '.join(message.split())[:200]}" for message in rows["first"])]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _named(failures: Sequence[Failure], most: int = MAX_NAMED) -> list[tuple[tuple[str, str], str]]:
    return [(failure.key, " ".join(failure.error.split())) for failure in failures[:most]]


def _shares(counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    return ", ".join(f"{name}: {100 * count / total:.1f} %" for name, count in counts.items())


def write_report(
    folder: Path,
    title: str,
    benchmark: str,
    records: Sequence[Record],
    failures: Sequence[Failure] = (),
    left_out: Sequence[LeftOut] = (),
) -> tuple[dict[str, Any], str]:
    """Write ``report.json`` and ``report.md`` into an evaluation's folder."""
    result = figures(records, failures, left_out)
    text = report_text(title, result, benchmark, failures)
    write_whole(folder / "report.json", [json.dumps(result, indent=2) + "\n"])
    write_whole(folder / "report.md", [text])
    return result, text
