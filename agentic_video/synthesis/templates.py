"""Counts of the reasoning templates of FrameThinker that trajectories follow.

The five templates are those of the paper's process-supervised data (appendix F.2); the sequence of an episode's actions
decides. No model is asked.
"""

import statistics
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import Any, Literal, get_args

from agentic_video.evaluation.tables import percent, section, table
from agentic_video.synthesis.inputs import grade_of, of_system
from agentic_video.systems.registry import METHODS
from agentic_video.types.action import Calls, ToolCall
from agentic_video.types.record import Record
from agentic_video.types.trajectory import Trajectory

Template = Literal[
    "direct", "single_pass", "timestamp_grounded", "hierarchical", "multi_interval", "other", "unfinished"
]
"""``direct``: an answer and no call. ``single_pass``: one look. ``timestamp_grounded``: lookups, then one look.
``hierarchical``: looks each of which lies inside the one before. ``multi_interval``: looks none of which lies inside
another. ``other``: another sequence that ends with an answer. ``unfinished``: no answer."""

TITLES: dict[Template, str] = {
    "direct": "A direct answering",
    "single_pass": "B single-pass selection",
    "timestamp_grounded": "C timestamp-grounded selection",
    "hierarchical": "D hierarchical selection",
    "multi_interval": "E multi-interval exploration",
    "other": "other sequences",
    "unfinished": "no answer",
}


def template_of(trajectory: Trajectory) -> Template:
    """The template that an episode follows. A refused call is no action."""
    if trajectory.answer is None:
        return "unfinished"
    calls = [
        call
        for turn in trajectory.turns
        if isinstance(turn.action, Calls) and turn.legal_calls
        for call in turn.action.calls
    ]
    names = [call.name for call in calls]
    if not names:
        return "direct"
    if names == ["choose_frames"]:
        return "single_pass"
    if len(calls) > 1 and names == ["frame_number"] * (len(calls) - 1) + ["choose_frames"]:
        return "timestamp_grounded"
    if set(names) != {"choose_frames"}:
        return "other"
    looks = [_frame_numbers(call) for call in calls]
    if all(_inside(later, earlier) for earlier, later in pairwise(looks)):
        return "hierarchical"
    if not any(a == b or _inside(a, b) or _inside(b, a) for a, b in combinations(looks, 2)):
        return "multi_interval"
    return "other"


def _frame_numbers(call: ToolCall) -> tuple[float, float]:
    """Start and end of a look."""
    start, end = call.arguments.get("start"), call.arguments.get("end")
    known = isinstance(start, int | float) and isinstance(end, int | float)
    return (start, end) if known else (0, float("inf"))  # type: ignore[return-value]


def _inside(inner: tuple[float, float], outer: tuple[float, float]) -> bool:
    return inner != outer and outer[0] <= inner[0] and inner[1] <= outer[1]


def summarise(records: Iterable[Record]) -> dict[str, Any]:
    """Count FrameThinker's trajectories by template and by number of calls.

    Returns:
        ``trajectories``, ``all``, ``templates`` (by name), ``actions`` (by number of calls). Each group has ``count``,
        ``share``, ``accuracy`` (mean grade, None without any) and ``calls`` (mean number of those carried out).
    """
    # a long run's records don't fit into memory
    measured = [(template_of(record.trajectory), record.trajectory.tool_calls, grade_of(record)) for record in records]

    def group(members: Sequence[tuple[str, int, float | None]]) -> dict[str, Any]:
        grades = [grade for _, _, grade in members if grade is not None]
        return {
            "count": len(members),
            "share": len(members) / len(measured),
            "accuracy": statistics.fmean(grades) if grades else None,
            "calls": statistics.fmean(calls for _, calls, _ in members) if members else 0.0,
        }

    numbers = sorted({calls for _, calls, _ in measured})
    return {
        "trajectories": len(measured),
        "all": group(measured),
        "templates": {name: group([row for row in measured if row[0] == name]) for name in get_args(Template)},
        "actions": {str(number): group([row for row in measured if row[1] == number]) for number in numbers},
    }


def templates_text(summary: dict[str, Any]) -> str:
    """The summary as Markdown."""

    def row(name: str, group: dict[str, Any]) -> tuple[str, ...]:
        share, accuracy = percent(group["share"]), percent(group["accuracy"])
        return name, f"{group['count']:,}", share, accuracy, f"{group['calls']:.2f}"

    columns = ("count", "share %", "accuracy %", "calls")
    templates = [row(TITLES[name], group) for name, group in summary["templates"].items()]
    actions = (row(calls, group) for calls, group in summary["actions"].items())
    lines = table(("template", *columns), [*templates, row("all", summary["all"])])
    return "\n".join([*lines, *section(("calls in the episode", *columns), actions)])


def count_templates(episodes: Iterable[Record]) -> dict[str, Any]:
    """Count the episodes of the system that has templates (see :func:`summarise`)."""
    return summarise(of_system(episodes, METHODS["templates"], "whose templates these are"))
