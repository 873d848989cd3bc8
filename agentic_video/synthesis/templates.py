"""Which of FrameThinker's reasoning templates do trajectories follow?

The five templates are those of the paper's process-supervised data (appendix F.2); the sequence of an episode's actions
decides. No model is asked.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field
from tyro.conf import Positional

from agentic_video.synthesis.inputs import grade_of, of_system, read_episodes
from agentic_video.systems.registry import METHODS
from agentic_video.types.action import Calls, ToolCall
from agentic_video.types.record import Record
from agentic_video.types.trajectory import Trajectory
from agentic_video.utils.journal import write_whole
from agentic_video.utils.option_types import OutputFile

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


@dataclass(frozen=True)
class TemplateRow:
    """One line of the report."""

    count: int  # trajectories
    share: float  # of all trajectories, 0 to 1
    accuracy: float | None  # mean grade, 0 to 1; None where none of them has one
    calls: float  # mean number of calls that were carried out


def template_of(trajectory: Trajectory) -> Template:
    """The template that an episode follows. A call that was refused is no action."""
    if trajectory.answer is None:
        return "unfinished"
    calls = [
        call
        for turn in trajectory.turns
        if isinstance(turn.action, Calls) and turn.legal_calls
        for call in turn.action.calls
    ]
    names = [call.name for call in calls]
    if not calls:
        return "direct"
    if names == ["choose_frames"]:
        return "single_pass"
    if len(calls) > 1 and names == ["frame_number"] * (len(calls) - 1) + ["choose_frames"]:
        return "timestamp_grounded"
    if set(names) != {"choose_frames"}:
        return "other"
    pairs = [_pair(call) for call in calls]
    if all(_inside(later, earlier) for earlier, later in pairwise(pairs)):
        return "hierarchical"
    if not any(one == other or _inside(one, other) or _inside(other, one) for one, other in combinations(pairs, 2)):
        return "multi_interval"
    return "other"


def _pair(call: ToolCall) -> tuple[float, float]:
    """The frame numbers of a look."""
    start, end = call.arguments.get("start"), call.arguments.get("end")
    known = isinstance(start, int | float) and isinstance(end, int | float)
    return (start, end) if known else (0, float("inf"))  # type: ignore[return-value]


def _inside(inner: tuple[float, float], outer: tuple[float, float]) -> bool:
    return inner != outer and outer[0] <= inner[0] and inner[1] <= outer[1]


@dataclass
class _Tally:
    """What is kept of some episodes: their number, their calls, and the sum and number of their grades."""

    count: int = 0
    calls: int = 0
    grades: float = 0.0
    graded: int = 0

    def add(self, record: Record) -> None:
        self.count += 1
        self.calls += record.trajectory.tool_calls
        if (grade := grade_of(record)) is not None:
            self.grades += grade
            self.graded += 1

    def row(self, total: int) -> dict[str, object]:
        accuracy = self.grades / self.graded if self.graded else None
        calls = self.calls / self.count if self.count else 0.0
        return asdict(TemplateRow(self.count, self.count / total, accuracy, calls))


def summarise(records: Iterable[Record]) -> dict[str, object]:
    """Count trajectories by template, and by number of actions."""
    every = _Tally()
    by_template = {name: _Tally() for name in get_args(Template)}
    by_calls: dict[int, _Tally] = defaultdict(_Tally)
    for record in records:
        for tally in every, by_template[template_of(record.trajectory)], by_calls[record.trajectory.tool_calls]:
            tally.add(record)
    return {
        "trajectories": every.count,
        "all": every.row(every.count),
        "templates": {name: tally.row(every.count) for name, tally in by_template.items()},
        "actions": {str(calls): by_calls[calls].row(every.count) for calls in sorted(by_calls)},
    }


def table(summary: dict[str, object]) -> str:
    """The report as text."""
    templates, actions = summary["templates"], summary["actions"]
    assert isinstance(templates, dict) and isinstance(actions, dict)
    lines = [_line("template", "count", "share", "accuracy", "calls")]
    lines += [_cells(TITLES[name], row) for name, row in templates.items()]
    lines += [_cells("all", summary["all"]), ""]
    lines += [_line("calls in the episode", "count", "share", "accuracy", "calls")]
    lines += [_cells(calls, row) for calls, row in actions.items()]
    return "\n".join(lines)


def _cells(name: str, row: object) -> str:
    assert isinstance(row, dict)
    accuracy = "-" if row["accuracy"] is None else f"{100 * row['accuracy']:.1f} %"
    return _line(name, f"{row['count']:,}", f"{100 * row['share']:.1f} %", accuracy, f"{row['calls']:.2f}")


def _line(name: str, *cells: str) -> str:
    return name.ljust(32) + "".join(cell.rjust(11) for cell in cells)


@dataclass(frozen=True)
class TemplateOptions:
    """Selection of recorded episodes."""

    records: Annotated[Positional[tuple[Path, ...]], Field(min_length=1)]
    """files of records, or folders of runs or evaluations"""
    out: OutputFile | None = None
    """write the numbers to this JSON file too"""


def count_templates(options: TemplateOptions) -> dict[str, object]:
    """Count episodes by template (see :func:`summarise`)."""
    records = of_system(
        read_episodes(options.records, out=options.out), METHODS["templates"], "whose templates these are"
    )
    summary = summarise(records)
    if options.out is not None:
        write_whole(options.out, [json.dumps(summary, indent=2) + "\n"])
    return summary
