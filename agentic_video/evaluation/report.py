"""The report of an evaluation: figures from finished episodes, as JSON, as Markdown, and next to published numbers."""

import json
import math
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from agentic_video.evaluation.fitting import ROOM, remedy, unfit
from agentic_video.evaluation.grounding import Measured, grounding_values
from agentic_video.evaluation.published import EMBEDDED, PublishedScore, published_for
from agentic_video.evaluation.results import ExcludedRow, Failure
from agentic_video.evaluation.suites import ACCURACY, headline, suite_figures
from agentic_video.evaluation.tables import percent, section
from agentic_video.types.action import Action, Calls
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, recorded_frames
from agentic_video.utils.standard_error import clustered_error
from agentic_video.utils.workdir import write_whole

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
"""Fields of ``extra_info`` that name the kind of question; the first one present counts."""
DURATION_FIELDS = ("duration_name", "duration_bucket", "duration_group", "length", "duration")
"""Fields that name or measure the video's length; without any, the video file's own length counts."""
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
GROUPINGS = ("data_source", "category", "duration")
COUNTED = ("turns", "tool_calls")
"""Figures whose values are reported as a distribution."""
TURN_ARGUMENTS = ("nframes", "resize", "fps")
"""Arguments of calls that are reported by turn."""
MAX_NAMED = 10
"""Number of unplayed questions that are named; all are counted."""


def category_of(qa: VideoQA) -> list[str]:
    """The kinds of question in a row."""
    value = next((qa.extra[name] for name in CATEGORY_FIELDS if qa.extra.get(name) not in (None, "", [])), None)
    if isinstance(value, str):
        return [value]
    return [str(item) for item in value] if isinstance(value, Sequence) else []


def duration_of(qa: VideoQA) -> list[str]:
    """The video's length in a row: a name, or a range."""
    value = next((qa.extra[name] for name in DURATION_FIELDS if qa.extra.get(name) not in (None, "")), None)
    if isinstance(value, str):
        return [value]
    if _is_number(value) and math.isfinite(value):
        return [bucket(float(value), _DURATION_ENDS, " s")]
    return []


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def bucket(value: float, ends: Sequence[float], unit: str = "") -> str:
    """The range of a positive number: ``(1, 2]``, or ``> 8`` beyond the last end."""
    place = bisect_left(ends, value)
    below = ends[place - 1] if place else 0.0
    return f"({below:g}, {ends[place]:g}]{unit}" if place < len(ends) else f"> {below:g}{unit}"


def chosen_fps(trajectory: Trajectory) -> list[float]:
    """The ``fps`` arguments of calls that were carried out."""
    values = [
        call.arguments.get("fps")
        for turn in trajectory.turns
        if isinstance(turn.action, Calls) and turn.legal_calls
        for call in turn.action.calls
    ]
    return [float(value) for value in values if _is_number(value) and 0 < value < math.inf]


def by_turn(records: Iterable[Record]) -> dict[str, dict[str, dict[str, float]]]:
    """Spread over episodes of the n-th turn with frames (EVA's Fig. 9), by its number: ``frames``, ``seconds`` from
    first to last frame, ``width`` in pixels, and the turn's mean of each of :data:`TURN_ARGUMENTS`."""
    turns: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
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
                turns[str(number)][name].append(value)
    return {
        number: {name: {"episodes": len(values), **spread(values)} for name, values in by_name.items()}
        for number, by_name in turns.items()
    }


def _mean_arguments(action: Action) -> dict[str, float]:
    calls = action.calls if isinstance(action, Calls) else ()
    means = {}
    for name in TURN_ARGUMENTS:
        values = [call.arguments.get(name) for call in calls]
        if numbers := [float(value) for value in values if _is_number(value) and 0 < value < 1e6]:
            means[f"argument {name}"] = statistics.fmean(numbers)
    return means


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
    return {
        "mean": statistics.fmean(values),
        "min": min(values),
        "median": statistics.median(values),
        "p90": float(np.quantile(values, 0.9, method="inverted_cdf")),
        "max": max(values),
    }


def with_unplayed_wrong(found: Mapping[str, Any], ungraded: int, unplayed: int) -> float | None:
    """An :func:`accuracy` that counts unplayed questions as wrong; None where no episode was graded."""
    total = found["episodes"] + unplayed
    if not total or (ungraded and not found["episodes"]):
        return None
    return (found["mean"] or 0.0) * float(found["episodes"]) / total


def figures(
    records: Sequence[Record], failures: Sequence[Failure] = (), excluded: Sequence[ExcludedRow] = ()
) -> dict[str, Any]:
    """All figures of an evaluation.

    Accuracies are shares from 0 to 1: ``official`` by the system's own rule, ``robust`` by the shared rule for multiple
    choice. Questions that weren't played (failures, excluded rows) count in neither; ``official_unplayed_wrong`` and
    ``robust_unplayed_wrong`` count them as wrong. ``headline`` compares with published numbers (see
    :class:`~agentic_video.evaluation.suites.Headline`); its ``unplayed_wrong`` assumes that what wasn't played is
    spread over tasks like the rest. ``unfit`` counts episodes whose first view fitted no budget.
    """
    official, robust = accuracy(records), accuracy(records, "acc_robust")
    ungraded = len(records) - official["episodes"]
    wrong = sum(row.asked for row in excluded)
    unplayed = len(failures) + wrong
    head = asdict(headline(records))
    by = _by_group(records)
    means = [group["official"]["mean"] for group in by["category"].values() if group["official"]["mean"] is not None]
    return {
        "asked": len(records) + unplayed,
        "episodes": len(records),
        "failed": len(failures),
        "left_out": {
            "rows": len(excluded),
            "counted_wrong": wrong,
            "by_reason": _counted(row.reason for row in excluded),
            "first": [row.message for row in excluded[:MAX_NAMED]],
        },
        "videos": len({record.qa.video for record in records}),
        "ungraded": ungraded,
        "hidden": sum(record.qa.hidden for record in records),
        "official": official,
        "robust": robust,
        "official_unplayed_wrong": with_unplayed_wrong(official, ungraded, unplayed),
        # unplayed questions may be of other kinds than multiple choice where there are others
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
        "per_episode": {name: spread(values) for name in PER_EPISODE if (values := _rewards(records, name))},
        "distribution": {name: _counted(map(int, _rewards(records, name))) for name in COUNTED},
        "by_turn": by_turn(records),
        "chosen_fps": _counted(
            (bucket(rate, _FPS_ENDS) for record in records for rate in chosen_fps(record.trajectory)),
            order=[bucket(end, _FPS_ENDS) for end in (*_FPS_ENDS, math.inf)],
        ),
        "unfit": _counted(
            (record.trajectory.end.value for record in records if unfit(record)), order=[end.value for end in ROOM]
        ),
        "ends": _counted((record.trajectory.end.value for record in records), order=[end.value for end in EndReason]),
    }


def _rewards(records: Sequence[Record], name: str) -> list[float]:
    return [record.rewards[name] for record in records if name in record.rewards]


def _by_group(records: Sequence[Record]) -> dict[str, dict[str, dict[str, Any]]]:
    """Both accuracies by data source, category and duration."""

    def duration(record: Record) -> list[str]:
        seconds = record.rewards.get("video_seconds")
        return duration_of(record.qa) or ([] if seconds is None else [bucket(seconds, _DURATION_ENDS, " s")])

    groups: dict[str, dict[str, list[Record]]] = {name: defaultdict(list) for name in GROUPINGS}
    for record in records:
        for grouping, names in zip(
            GROUPINGS, ([record.qa.data_source], category_of(record.qa), duration(record)), strict=True
        ):
            for name in names:
                groups[grouping][name].append(record)
    return {
        grouping: {
            name: {"official": accuracy(members), "robust": accuracy(members, "acc_robust")}
            for name, members in sorted(by_name.items())
        }
        for grouping, by_name in groups.items()
    }


def _counted(values: Iterable[Any], order: Sequence[Any] | None = None) -> dict[str, int]:
    counts = Counter(values)
    return {str(value): counts[value] for value in (order or sorted(counts)) if counts[value]}


def report_text(title: str, result: Mapping[str, Any], benchmark: str, failures: Sequence[Failure] = ()) -> str:
    """The report as Markdown.

    Args:
        result: See :func:`figures`.
        benchmark: Published numbers of this benchmark are shown.
    """
    lines = [f"# {title}", "", _accuracies(result)]
    if counts := result["unfit"]:
        unfit_count, keys = sum(counts.values()), remedy([EndReason(end) for end in counts])
        lines.append(
            f"**{unfit_count} of {result['episodes']} first views fitted no budget: no turn, counted as wrong. "
            f"To play them, {keys}.**"
        )
    if (head := result["headline"])["name"] != ACCURACY and head["mean"] is not None:
        error = "" if head["error"] is None else f" (standard error {percent(head['error'])})"
        scored = f"{head['name']} {percent(head['mean'])} %{error} on {_count(head['episodes'], 'episode')}"
        lines.append(f"{scored}: the number to compare with papers.")
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
        lines += [f"- {' '.join(failure.key)}: {_shortened(failure.error)}" for failure in failures[:MAX_NAMED]]
    lines += _excluded(result["left_out"])
    if result["asked"] > result["episodes"]:
        lines += ["", "What follows is about the questions that were played."]
    lines += _accuracy_tables(result)
    lines += section(
        ("per episode", "mean", "min", "median", "90 %", "max"),
        (
            (name.replace("_", " "), *(f"{values[key]:.4g}" for key in ("mean", "min", "median", "p90", "max")))
            for name, values in result["per_episode"].items()
        ),
    )
    names = list(dict.fromkeys(name for values in result["by_turn"].values() for name in values))
    lines += section(
        ("look", "episodes", *names),
        (
            (
                number,
                values["frames"]["episodes"],
                *(f"{values[name]['mean']:.4g}" if name in values else "-" for name in names),
            )
            for number, values in result["by_turn"].items()
        ),
    )
    distributions = {
        "turns": result["distribution"]["turns"],
        "tool calls": result["distribution"]["tool_calls"],
        "fps chosen": result["chosen_fps"],
        "ends": result["ends"],
    }
    lines += section(
        ("distribution", "share of episodes (of calls, for fps)"),
        ((name, _shares(counts)) for name, counts in distributions.items() if counts),
    )
    if rows := published_for(benchmark):
        lines += _published(result, benchmark, rows)
    return "\n".join(lines) + "\n"


def _accuracies(result: Mapping[str, Any]) -> str:
    """The accuracies in one line, also with unplayed questions as wrong, so that no one copies the other alone."""
    official, robust = result["official"], result["robust"]
    error = (
        f" (standard error {percent(official['error'])}, by {result['videos']} videos)"
        if official["error"] is not None
        else ""
    )
    of_all, strict, robust_strict = "", "", ""
    if result["asked"] > result["episodes"]:
        of_all = f" of {_count(result['asked'], 'question')}"
        strict = f", {percent(result['official_unplayed_wrong'])} % with those that were not played as wrong"
        if result["robust_unplayed_wrong"] is not None:
            robust_strict = f", {percent(result['robust_unplayed_wrong'])} % with those as wrong"
    return (
        f"Accuracy {percent(official['mean'])} %{error} on {_count(official['episodes'], 'episode')}{of_all}{strict}; "
        f"by the robust rule {percent(robust['mean'])} % on {robust['episodes']}{robust_strict}."
    )


def _excluded(rows: Mapping[str, Any]) -> list[str]:
    if not rows["rows"]:
        return []
    reasons = ", ".join(f"{reason}: {count}" for reason, count in rows["by_reason"].items())
    uncounted = rows["rows"] - rows["counted_wrong"]
    note = f"; {uncounted} of them not counted as wrong (beyond --limit, or the same row again)" if uncounted else ""
    lines = ["", f"{_count(rows['rows'], 'row')} of the data files left out ({reasons}){note}:", ""]
    return [*lines, *(f"- {_shortened(message)}" for message in rows["first"])]


def _accuracy_tables(result: Mapping[str, Any]) -> list[str]:
    """Accuracies by group, scores of suites, and figures of grounding."""
    lines = []
    for grouping, groups in result["by"].items():
        if grouping == "data_source" and len(groups) == 1:
            continue
        rows: list[tuple[Any, ...]] = []
        for name, group in groups.items():
            official, robust = group["official"], group["robust"]
            shares = (percent(official["mean"]), percent(official["error"]), percent(robust["mean"]))
            rows.append((name, official["episodes"], *shares))
        lines += section((grouping.replace("_", " "), "episodes", "accuracy %", "standard error", "robust %"), rows)
    for source, scores in result["suites"].items():
        rows = [(name, percent(score["mean"]), percent(score["error"])) for name, score in scores.items()]
        lines += section((source, "%", "standard error"), rows)
    for source, by_name in result["grounding"].items():
        rows = [
            (name.replace("_", " "), value["episodes"], percent(value["mean"]), percent(value["error"]))
            for name, value in by_name.items()
        ]
        lines += section((f"{source}, grounding", "episodes", "%", "standard error"), rows)
    return lines


def _published(result: Mapping[str, Any], benchmark: str, published: Sequence[PublishedScore]) -> list[str]:
    """A table of published numbers, or why this run's number isn't comparable."""
    head = result["headline"]
    problem = "they compare captions by a sentence encoder" if published[0].benchmark in EMBEDDED else head["problem"]
    if problem:
        return ["", f"The numbers published on {benchmark} aren't shown next to this run's: {problem}."]
    notes = [] if head["name"] == ACCURACY else [head["name"]]
    counting = [row for row in published if row.frame_tokens]
    if counting and "visual_tokens" in result["per_episode"]:
        tokens, papers = counting[0].frame_tokens, ", ".join(dict.fromkeys(row.paper for row in counting))
        notes.append(f"{mean_frames(result, tokens)} frames as {papers} counts them ({tokens} visual tokens each)")
    if (unplayed := result["asked"] - result["episodes"]) > 0:
        strict = percent(head["unplayed_wrong"])
        notes.append(f"{unplayed} of {result['asked']} questions not played; {strict} with them as wrong")
    rows = [("this run", "", percent(head["mean"]), mean_frames(result), "", "; ".join(notes))]
    for row in published:
        calls = "" if row.calls is None else f"at most {row.calls} calls"
        frames, note = "-" if row.frames is None else f"{row.frames:g}", "; ".join(filter(None, (calls, row.note)))
        rows.append((row.model, row.paper, f"{row.accuracy:.1f}", frames, row.table, note))
    title = ("model", "paper", "accuracy %" if head["name"] == ACCURACY else "%", "frames", "where", "note")
    return ["", f"Published on {benchmark}:", *section(title, rows)]


def mean_frames(result: Mapping[str, Any], frame_tokens: int | None = None) -> str:
    """Mean frames of an episode; with ``frame_tokens``, so many visual tokens count as one frame."""
    values = result["per_episode"].get("visual_tokens" if frame_tokens else "frames")
    return f"{values['mean'] / (frame_tokens or 1):.1f}" if values else "-"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shortened(message: str) -> str:
    return " ".join(message.split())[:200]


def _shares(counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    return ", ".join(f"{name}: {100 * count / total:.1f} %" for name, count in counts.items())


def write_report(
    folder: Path,
    title: str,
    benchmark: str,
    records: Sequence[Record],
    failures: Sequence[Failure] = (),
    excluded: Sequence[ExcludedRow] = (),
) -> tuple[dict[str, Any], str]:
    """Write ``report.json`` and ``report.md``; returns figures and text."""
    result = figures(records, failures, excluded)
    text = report_text(title, result, benchmark, failures)
    write_whole(folder / "report.json", [json.dumps(result, indent=2) + "\n"])
    write_whole(folder / "report.md", [text])
    return result, text
