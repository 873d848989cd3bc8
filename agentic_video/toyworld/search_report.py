"""Search figures of a run, by step: ``python -m agentic_video.toyworld.search_report outputs/eva-laptop/run-001``.

For runs in the world that must be searched (``+profile=search``, ``+profile=grounding``)."""

import argparse
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentic_video.toyworld.search import SearchFigures, search_figures
from agentic_video.toyworld.world import SEARCH_KINDS
from agentic_video.types.record import Record, RecordError, read_records
from agentic_video.utils.errors import SetupError


@dataclass(frozen=True)
class SearchSummary:
    """Search figures of some episodes; None if no episode tells.

    Attributes:
        accuracy: Share of right answers; of intervals their mean IoU.
        first_follows: Share of first looks that went where the signpost points.
        again: Share of episodes that looked again after a miss.
        second_follows: Share of these that went where the event may still be.
        found: Share of episodes that looked at the event.
    """

    episodes: int
    accuracy: float
    looks: float
    first_follows: float | None
    again: float | None
    second_follows: float | None
    found: float


HEADER = ("episodes", "accuracy", "looks", "first look follows", "looks again", "second look follows", "found")


def summarize(records: Iterable[Record]) -> SearchSummary | None:
    """Figures of some episodes; None if none of them had to search."""
    figures: list[SearchFigures] = []
    right: list[float] = []
    for record in records:
        if record.qa.extra.get("kind") in SEARCH_KINDS:
            figures.append(search_figures(record.trajectory, float(record.qa.extra["event_time"])))
            right.append(float(record.rewards.get("acc", 0.0)))
    if not figures:
        return None
    missed = [episode for episode in figures if episode.missed_first]
    return SearchSummary(
        episodes=len(figures),
        accuracy=statistics.fmean(right),
        looks=statistics.fmean(episode.looks for episode in figures),
        first_follows=_share([episode.first_follows for episode in figures]),
        again=_share([episode.second_follows is not None for episode in missed]),
        second_follows=_share([episode.second_follows for episode in figures]),
        found=statistics.fmean(episode.found for episode in figures),
    )


def _share(values: Iterable[bool | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def cells(searched: SearchSummary) -> list[str]:
    """Cells of a table row, in the order of :data:`HEADER`."""
    shares = (searched.first_follows, searched.again, searched.second_follows, searched.found)
    return [
        str(searched.episodes),
        f"{searched.accuracy:.2f}",
        f"{searched.looks:.2f}",
        *("-" if share is None else f"{share:.2f}" for share in shares),
    ]


def by_steps(folder: Path, width: int) -> list[tuple[str, SearchSummary]]:
    """Figures of a run's training episodes, ``width`` steps together."""
    groups: dict[int, list[Record]] = {}
    for file in sorted((folder / "episodes").glob("step_*.jsonl")):
        if match := re.fullmatch(r"step_(\d+)", file.stem):
            try:
                groups.setdefault((int(match[1]) - 1) // width, []).extend(read_records(file))
            except RecordError as error:
                raise SetupError(str(error)) from error
    lines = [
        (f"{number * width + 1}-{(number + 1) * width}", searched)
        for number, records in sorted(groups.items())
        if (searched := summarize(records))
    ]
    if not lines:
        raise SetupError(f"{folder}: no episodes of a world that must be searched; run a recipe with +profile=search")
    return lines


def table(lines: Sequence[tuple[str, SearchSummary]]) -> str:
    """A Markdown table, a row per group of steps."""
    rows = [["steps", *HEADER], ["---"] * (len(HEADER) + 1), *([steps, *cells(summary)] for steps, summary in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m agentic_video.toyworld.search_report", description=__doc__)
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--width", type=int, default=5, metavar="N", help="steps in a line (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        print(table(by_steps(arguments.run, max(1, arguments.width))))
    except SetupError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
