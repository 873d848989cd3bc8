"""A run at one view: its curves, where in the videos it looks, and signs of collapse.

The curves come from a run's own metrics: the reward is that of all sampled episodes, the rest is about those that were
trained on. Where a folder has none, they are means over the recorded episodes. What has no step (an evaluation) is a
table.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
AVERAGE = f"moving average over {SMOOTHING} steps"


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
    rows: dict[tuple[int, str], list[Row]] = {}
    for number in episodes.present:
        row = episodes.rows[number]
        rows.setdefault((row.run, row.set_name), []).append(row)
    measured = [number for number, run in enumerate(episodes.runs) if _measured(run)]
    found = [entry for number in measured for entry in _of_metrics(number, episodes.runs[number])]
    several = Counter(run for run, _ in rows)
    for (number, set_name), members in rows.items():
        if number not in measured:
            found += _of_rows(number, f"{set_name}: " if several[number] > 1 else "", members)
    if len(episodes.runs) < 2:  # the terms of one run's reward share a chart
        terms = "Terms of the reward"
        found = [("term", terms, line) if key.startswith("term/") else (key, title, line) for key, title, line in found]
    charts: dict[tuple[str, str], list[Line]] = {}
    for key, title, line in found:
        charts.setdefault((key, title), []).append(line)
    order = ["reward", "term", *_METRICS, "tokens"]
    made = [Chart(key, title, lines) for (key, title), lines in charts.items()]
    return sorted(made, key=lambda chart: order.index(chart.key.split("/")[0]))


ChartLines = Iterator[tuple[str, str, Line]]
"""Lines with their chart's key and title."""


def _measured(run: Run) -> bool:
    """Return True if a run's metrics have its rewards."""
    return any(_reward_key(run) in values for values in run.metrics.values())


def _reward_key(run: Run) -> str:
    return REWARD if any(REWARD in values for values in run.metrics.values()) else TRAINED


def _of_metrics(number: int, run: Run) -> ChartLines:
    """A run's lines from its metrics."""
    metrics, reward = run.metrics, _reward_key(run)

    def line(name: str, steps: Sequence[int], values: Sequence[float], style: str = RAW, share: bool = False) -> Line:
        kept = [(step, value) for step, value in zip(steps, values, strict=True) if finite(value) is not None]
        return Line(number, name, style, [step for step, _ in kept], [value for _, value in kept], share)

    raw = line(_OF_STEP[reward], *series(metrics, reward))
    yield "reward", "Reward", raw
    yield "reward", "Reward", line(AVERAGE, raw.steps, _smooth(raw.values), SMOOTH)
    held_out = held_out_accuracies(metrics)
    one_source = len({accuracy.source for accuracy in held_out}) == 1
    for accuracy in held_out:
        name = f"held-out accuracy, {accuracy.how if one_source else accuracy.name}"
        yield "reward", "Reward", line(name, accuracy.steps, accuracy.values, accuracy.how, share=True)
    for key in dict.fromkeys(key for values in metrics.values() for key in values if key.startswith("episode/term_")):
        name = key.removeprefix("episode/term_")
        yield f"term/{name}", f"Term: {name}", line(name, *series(metrics, key))
    for key, (title, metric) in _METRICS.items():
        steps, values = series(metrics, metric)
        if steps:
            yield key, title, line(title.lower(), steps, values)


def _of_rows(number: int, prefix: str, rows: Sequence[Row]) -> ChartLines:
    """A run's lines from its recorded episodes."""
    by_step: dict[int, list[Row]] = {}
    for row in rows:
        if row.step is not None:
            by_step.setdefault(row.step, []).append(row)
    by_step = dict(sorted(by_step.items()))

    def line(name: str, read: Callable[[Row], float | None]) -> Line:
        means = {}
        for step, members in by_step.items():
            values = [value for row in members if (value := read(row)) is not None]
            if values and (mean := _mean(values)) is not None:
                means[step] = mean
        return Line(number, prefix + name, RAW, list(means), list(means.values()))

    raw = line("mean of a step's recorded episodes", lambda row: row.reward)
    found = [("reward", "Reward", raw)]
    found.append(("reward", "Reward", Line(number, prefix + AVERAGE, SMOOTH, raw.steps, _smooth(raw.values))))
    for name in dict.fromkeys(name for members in by_step.values() for row in members for name in row.terms):
        found.append((f"term/{name}", f"Term: {name}", line(name, partial(_term, name))))
    for key, title in _COLUMNS.items():
        found.append((key, title, line(title.lower(), attrgetter(key))))
    found.append(("tokens", _TOKENS, line(_TOKENS.lower(), lambda row: row.tokens or None)))
    yield from (entry for entry in found if entry[2].steps)


def _term(name: str, row: Row) -> float | None:
    return row.terms.get(name)


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
