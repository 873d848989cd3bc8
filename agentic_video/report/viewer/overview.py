"""A run at one view: its curves, where in the videos it looks, and signs of collapse.

The curves come from a run's own metrics: the reward is that of all sampled episodes, the rest is about those that were
trained on. Where a folder has none, they are means over the recorded episodes. What has no step (an evaluation) is a
table.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import attrgetter
from typing import Any

from agentic_video.report.collapse import signs_of
from agentic_video.report.format_alarm import alarms_of
from agentic_video.report.held_out import held_out_accuracies
from agentic_video.report.metrics import series
from agentic_video.report.summary import REWARD, SMOOTHING, TRAINED, smooth
from agentic_video.report.viewer.episodes import Episodes, Looks, Row, Run
from agentic_video.report.viewer.safe_json import finite

PLACES = 20
"""Parts of a video that the map of looks tells apart."""
MOST_COLUMNS = 40
"""Of the map: where there are more steps, several are one column."""

RAW, SMOOTH = "raw", "smooth"
"""Styles of a line; a held-out one's is its ``HeldOut.how``."""

_OF_STEP = {REWARD: "mean of a step's episodes", TRAINED: "mean of a step's episodes that were trained on"}
_METRICS = {
    "acc": ("Accuracy", "episode/acc"),
    "calls": ("Calls", "episode/tool_calls"),
    "refused": ("Refused calls", "episode/illegal_calls"),
    "turns": ("Turns", "episode/turns"),
    "frames": ("Frames", "episode/frames"),
    "length": ("Tokens of a response", "response_length/mean"),
    "entropy": ("Entropy", "actor/entropy"),
}
"""Charts of a run with metrics: titles and keys."""
_COLUMNS = {"acc": "Accuracy", "calls": "Calls", "refused": "Refused calls", "turns": "Turns", "frames": "Frames"}
_TOKENS = "Tokens of an episode"


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    run: int  # number of its run
    name: str  # what it shows, the run left out
    style: str  # one of the names above
    steps: Sequence[int]  # where it has values
    values: Sequence[float]  # finite ones
    share: bool = False  # whether it is drawn on an axis of its own, from 0 to 1


@dataclass(frozen=True)
class Chart:
    """Lines over the steps; ``key`` is the chart's own, e.g. ``calls``."""

    key: str
    title: str
    lines: Sequence[Line]


def names_of(runs: Sequence[Run]) -> list[str]:
    """Names that tell runs apart: their folders without common first and last parts."""
    parts = [run.folder.parts for run in runs]
    if len(runs) < 2:
        return ["/".join(run[-2:]).lstrip("/") for run in parts]
    start = _common(parts)
    end = _common([run[start:][::-1] for run in parts])
    return ["/".join(run[max(0, min(start, len(run) - end - 1)) : len(run) - end]).lstrip("/") for run in parts]


def _common(paths: Sequence[Sequence[str]]) -> int:
    """Number of first parts that all paths share."""
    return sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False)))


def charts_of(episodes: Episodes) -> list[Chart]:
    """The run's curves, in the order in which they are shown."""
    lines: dict[tuple[str, str], list[Line]] = {}
    rows: dict[tuple[int, str], list[Row]] = {}
    for number in episodes.present:
        row = episodes.rows[number]
        rows.setdefault((row.run, row.set_name), []).append(row)
    told = {number for number, run in enumerate(episodes.runs) if _measured(run)}
    for number in sorted(told):
        _of_metrics(number, episodes.runs[number].metrics, _reward_key(episodes.runs[number]), lines)
    several = Counter(run for run, _ in rows)
    for (number, set_name), members in rows.items():
        if number not in told:
            _of_rows(number, set_name if several[number] > 1 else "", members, lines)
    order = ["reward", "term", *_METRICS, "tokens"]
    charts = [Chart(key, title, found) for (key, title), found in lines.items()]
    if len(episodes.runs) < 2:
        charts = _terms_together(charts)
    return sorted(charts, key=lambda chart: order.index(chart.key.split("/")[0]))


def _measured(run: Run) -> bool:
    """Whether a run's metrics tell its rewards."""
    return any(_reward_key(run) in values for values in run.metrics.values())


def _reward_key(run: Run) -> str:
    return REWARD if any(REWARD in values for values in run.metrics.values()) else TRAINED


def _of_metrics(
    run: int,
    metrics: Mapping[int, Mapping[str, float]],
    reward: str,
    lines: dict[tuple[str, str], list[Line]],
) -> None:
    """Add a run's lines from its metrics."""

    def line(name: str, steps: Sequence[int], values: Sequence[float], style: str = RAW, share: bool = False) -> Line:
        kept = [(step, value) for step, value in zip(steps, values, strict=True) if finite(value) is not None]
        return Line(run, name, style, [step for step, _ in kept], [value for _, value in kept], share)

    raw = line(_OF_STEP[reward], *series(metrics, reward))
    held_out = held_out_accuracies(metrics)
    one_source = len({accuracy.source for accuracy in held_out}) == 1
    lines.setdefault(("reward", "Reward"), []).extend(
        (
            raw,
            line(f"moving average over {SMOOTHING} steps", raw.steps, _smooth(raw.values), SMOOTH),
            *(
                line(
                    f"held-out accuracy, {accuracy.how if one_source else accuracy.name}",
                    accuracy.steps,
                    accuracy.values,
                    accuracy.how,
                    share=True,
                )
                for accuracy in held_out
            ),
        )
    )
    terms = dict.fromkeys(key for values in metrics.values() for key in values if key.startswith("episode/term_"))
    for key in terms:
        name = key.removeprefix("episode/term_")
        lines.setdefault((f"term/{name}", f"Term: {name}"), []).append(line(name, *series(metrics, key)))
    for key, (title, metric) in _METRICS.items():
        steps, values = series(metrics, metric)
        if steps:
            lines.setdefault((key, title), []).append(line(title.lower(), steps, values))


def _of_rows(run: int, set_name: str, rows: Sequence[Row], lines: dict[tuple[str, str], list[Line]]) -> None:
    """Add a run's lines from its recorded episodes."""
    by_step: dict[int, list[Row]] = {}
    for row in rows:
        if row.step is not None:
            by_step.setdefault(row.step, []).append(row)
    by_step = dict(sorted(by_step.items()))

    def means(read: Callable[[Row], float | None]) -> tuple[list[int], list[float]]:
        found = {
            step: values
            for step, members in by_step.items()
            if (values := [value for row in members if (value := read(row)) is not None])
        }
        means = {step: mean for step, values in found.items() if (mean := _mean(values)) is not None}
        return list(means), list(means.values())

    def add(key: str, title: str, name: str, read: Callable[[Row], float | None]) -> tuple[list[int], list[float]]:
        steps, values = means(read)
        if steps:
            named = f"{set_name}: {name}" if set_name else name
            lines.setdefault((key, title), []).append(Line(run, named, RAW, steps, values))
        return steps, values

    steps, values = add("reward", "Reward", "mean of a step's recorded episodes", lambda row: row.reward)
    if steps:
        name = f"moving average over {SMOOTHING} steps"
        named = f"{set_name}: {name}" if set_name else name
        lines["reward", "Reward"].append(Line(run, named, SMOOTH, steps, _smooth(values)))
    for name in dict.fromkeys(name for members in by_step.values() for row in members for name in row.terms):
        add(f"term/{name}", f"Term: {name}", name, _term(name))
    for key, title in _COLUMNS.items():
        add(key, title, title.lower(), attrgetter(key))
    add("tokens", _TOKENS, _TOKENS.lower(), lambda row: row.tokens or None)


def _term(name: str) -> Callable[[Row], float | None]:
    return lambda row: row.terms.get(name)


def _smooth(values: Sequence[float]) -> Sequence[float]:
    try:
        return smooth(values)
    except OverflowError:
        return values


def _mean(values: Iterable[float]) -> float | None:
    try:
        return finite(statistics.fmean(values))
    except OverflowError:
        return None


def _terms_together(charts: Sequence[Chart]) -> list[Chart]:
    """With the terms of one run's reward in one chart."""
    terms = [line for chart in charts if chart.key.startswith("term/") for line in chart.lines]
    others = [chart for chart in charts if not chart.key.startswith("term/")]
    return [*others, Chart("term", "Terms of the reward", terms)] if terms else others


@dataclass(frozen=True)
class Column:
    """One column of the map: some steps, or a data source where there are no steps."""

    name: str
    steps: tuple[int, int] | None  # the first and the last; None for a data source
    frames: int  # how many were looked at
    shares: Sequence[float]  # of them, in each of the :data:`PLACES` parts of the video, from its beginning


def lengths_of(episodes: Episodes) -> list[float]:
    """Length of each question's video in seconds: the row's, else the latest shown time; 0 where neither is known."""
    told = [0.0] * len(episodes.questions)
    latest: dict[str, float] = {}
    for row, looks in zip(episodes.rows, episodes.looks, strict=True):
        video = episodes.questions[row.question].video
        latest[video] = max(latest.get(video, 0.0), looks.latest)
        told[row.question] = looks.seconds or told[row.question]
    return [
        seconds or latest.get(question.video, 0.0) for seconds, question in zip(told, episodes.questions, strict=True)
    ]


def map_of(numbers: Iterable[int], episodes: Episodes, lengths: Sequence[float]) -> list[Column]:
    """Places in the videos that some episodes looked at, by step; either all episodes have a step or none has."""
    members: dict[int | str, list[int]] = {}
    for number in numbers:
        row = episodes.rows[number]
        members.setdefault(row.data_source if row.step is None else row.step, []).append(number)
    steps = sorted(step for step in members if isinstance(step, int))
    if not steps:
        sources = sorted(source for source in members if isinstance(source, str))[:MOST_COLUMNS]
        return [_column(source, None, members[source], episodes, lengths) for source in sources]
    width = -(-(steps[-1] - steps[0] + 1) // MOST_COLUMNS)
    columns: dict[int, list[int]] = {}
    for step in steps:
        columns.setdefault((step - steps[0]) // width, []).extend(members[step])
    found = []
    for place, inside in columns.items():
        first = steps[0] + place * width
        last = min(first + width - 1, steps[-1])
        found.append(
            _column(str(first) if first == last else f"{first}-{last}", (first, last), inside, episodes, lengths)
        )
    return found


def _column(
    name: str, steps: tuple[int, int] | None, numbers: Iterable[int], episodes: Episodes, lengths: Sequence[float]
) -> Column:
    counts = [0] * PLACES
    for number in numbers:
        length = _length(episodes.looks[number], lengths[episodes.rows[number].question])
        for time in episodes.looks[number].times:
            counts[min(PLACES - 1, int(PLACES * (time / length))) if time < length else PLACES - 1] += 1
    frames = sum(counts)
    return Column(name, steps, frames, [count / frames if frames else 0.0 for count in counts])


def _length(looks: Looks, of_video: float) -> float:
    return looks.seconds or of_video or 1.0


def table_of(episodes: Episodes) -> list[dict[str, Any]]:
    """Episodes without a step, by run, set and data source."""
    members: dict[tuple[int, str, str], list[Row]] = {}
    for number in episodes.present:
        row = episodes.rows[number]
        if row.step is None:
            members.setdefault((row.run, row.set_name, row.data_source), []).append(row)
    return [
        {
            "run": run,
            "set_name": set_name,
            "data_source": source,
            "episodes": len(rows),
            **{
                key: _mean(values) if (values := [v for row in rows if (v := getattr(row, key)) is not None]) else None
                for key in ("acc", "reward", "calls", "refused", "turns", "frames")
            },
            "ends": dict(Counter(row.end for row in rows).most_common()),
        }
        for (run, set_name, source), rows in members.items()
    ]


def overview_of(episodes: Episodes, lengths: Sequence[float]) -> dict[str, Any]:
    """Content of the page's overview, as plain data."""
    members: dict[tuple[int, str, bool], list[int]] = {}
    for number in episodes.present:
        row = episodes.rows[number]
        members.setdefault((row.run, row.set_name, row.step is None), []).append(number)
    maps = [(run, set_name, map_of(numbers, episodes, lengths)) for (run, set_name, _), numbers in members.items()]
    return {
        "charts": [
            {"key": chart.key, "title": chart.title, "lines": [_plain(line) for line in chart.lines]}
            for chart in charts_of(episodes)
        ],
        "maps": [
            {
                "run": run,
                "set_name": set_name,
                "columns": [
                    [column.name, column.steps, column.frames, [round(share, 4) for share in column.shares]]
                    for column in columns
                ],
            }
            for run, set_name, columns in maps
            if any(column.frames for column in columns)
        ],
        "table": table_of(episodes),
        "signs": [
            [number, text]
            for number, run in enumerate(episodes.runs)
            for text in (*alarms_of(run.metrics), *(sign.text for sign in signs_of(run.metrics)))
        ],
        "measured": [number for number, run in enumerate(episodes.runs) if _measured(run)],
    }


def _plain(line: Line) -> dict[str, Any]:
    values = [float(f"{value:.6g}") for value in line.values]
    return {**vars(line), "steps": list(line.steps), "values": values}
