"""A reproduction's table: its evaluations next to the published numbers, or the synthetic world's figures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentic_video.converters import CONVERTERS
from agentic_video.converters.base import ProblemKind
from agentic_video.evaluation.published import PublishedScore, published
from agentic_video.evaluation.report import mean_frames
from agentic_video.evaluation.suites import ACCURACY
from agentic_video.evaluation.tables import percent, table
from agentic_video.launch.reproduce.chain import Chain, ChainStage, TableRow
from agentic_video.launch.reproduce.reproduction import Reproduction, lacking, option_of, reports_of
from agentic_video.utils.workdir import write_whole

TABLE = "table.md"
BAD: tuple[ProblemKind, ...] = ("bad_row", "duplicate_id", "unsupported")
"""Reasons to leave rows out that hold for everyone with the published files."""


@dataclass(frozen=True)
class QuestionCount:
    """Questions of a benchmark: published, unplayable as they were published, and without their videos here."""

    official: int
    bad: int = 0
    lacking: int = 0


@dataclass(frozen=True)
class TableEntry:
    """A row of the table.

    Attributes:
        report: Its ``report.json``; None where it wasn't played.
        benchmark: Of its rows; None where no number of questions is published.
    """

    row: TableRow
    report: Mapping[str, Any] | None = None
    benchmark: QuestionCount | None = None


def write_table(reproduction: Reproduction) -> str:
    """Write ``table.md`` into a reproduction's folder; returns its text."""
    found = []
    for stage in reproduction.stages:
        if stage.row is not None and not stage.left_out:
            report = reproduction.path(stage.name, "report")
            benchmark = benchmark_of(reproduction, stage)
            found.append(TableEntry(stage.row, None if report is None else read_report(report), benchmark))
    text = table_text(reproduction.chain, found)
    write_whole(reproduction.options.out / TABLE, [text])
    return text


def read_report(file: Path) -> Mapping[str, Any]:
    """Read an evaluation's ``report.json``."""
    return dict(json.loads(file.read_text(encoding="utf-8")))


def benchmark_of(reproduction: Reproduction, stage: ChainStage) -> QuestionCount | None:
    """Count the questions of an evaluation's rows; None where that isn't published of all of them.

    Conversions report it; of given rows without a report, converters know it.
    """
    found = []
    for name, output in stage.places:
        maker = reproduction.chain.stage(name) if output else None
        if maker is None or maker.words[:1] != ("convert",):
            continue
        path = reproduction.path(name, output)
        report = next(reports_of([path] if path else []), {})
        official = report["official_rows"] if "official_rows" in report else _official(maker)
        if not official:
            return None
        counts = report.get("counts", {})
        found.append(QuestionCount(official, sum(counts.get(kind, 0) for kind in BAD), lacking(report)))
    official, bad, lack = (sum(getattr(count, name) for count in found) for name in ("official", "bad", "lacking"))
    return QuestionCount(official, bad, lack) if found else None


def _official(maker: ChainStage) -> int | None:
    """The published number of questions of the split that a conversion makes."""
    converter = CONVERTERS.get(maker.words[1])
    if converter is None:
        return None
    split = converter.splits.get(option_of(maker.words, "--split") or next(iter(converter.splits)))
    return split.rows if split else None


def table_text(chain: Chain, rows: Sequence[TableEntry]) -> str:
    """The table as Markdown; a rehearsal's has no published number."""
    if chain.mode == "laptop":
        head = [
            f"# {chain.paper}: a rehearsal on the synthetic world",
            "",
            "Tiny models on made-up videos, after a few steps. **No figure here is the paper's, and none can be",
            f"compared with one.** The last column has the synthetic world's own figures ({chain.toyworld.figures}).",
            "",
        ]
        if left_out := [stage.name for stage in chain.stages if stage.left_out]:
            head[-1:] = ["", f"Not rehearsed, as the plan says why: {', '.join(left_out)}.", ""]
        columns: tuple[str, ...] = ("evaluated", "accuracy %", "±", "episodes", "synthetic world %")
        cells = [_rehearsed(entry.row, entry.report) for entry in rows]
        return "\n".join([*head, *table(columns, cells)]) + "\n"
    head = [
        f"# {chain.paper}: reproduced, next to the published numbers",
        "",
        "Accuracy in percent; ± is the standard error of this run. Rows that couldn't be played count as wrong.",
        "A benchmark that was asked in part isn't compared: the note says how many of its questions were asked.",
        "",
    ]
    columns = ("benchmark", "model", "questions", "this run", "±", "frames")
    columns += ("published", "difference", "frames", "where", "note")
    cells = [cell for entry in rows for cell in _compared(chain.paper, entry)]
    return "\n".join([*head, *table(columns, cells)]) + "\n"


def _rehearsed(row: TableRow, report: Mapping[str, Any] | None) -> tuple[str, ...]:
    figure = "-" if row.figure is None else f"{row.figure:.1f}"
    if report is None:
        return (row.benchmark, "not played", "", "", figure)
    official = report["official"]
    return (row.benchmark, percent(official["mean"]), percent(official["error"]), str(official["episodes"]), figure)


def numbers_of(paper: str, row: TableRow) -> list[PublishedScore]:
    """The paper's own published numbers of a row, with its usual number of calls and as many frames."""
    return [
        number
        for number in published()
        if (number.paper, number.benchmark, number.model) == (paper, row.benchmark, row.model)
        and number.calls is None
        and row.table in ("", number.table)
        and row.frames in (None, number.frames)
    ]


def _compared(paper: str, evaluated: TableEntry) -> list[tuple[str, ...]]:
    """Cells of an evaluation: a row for each published number of the same model on the same benchmark."""
    row, report = evaluated.row, evaluated.report
    mean, own, notes = None, ("", "not played", ""), []
    if report is not None:
        official = {"name": ACCURACY, **report["official"], "unplayed_wrong": report["official_unplayed_wrong"]}
        score = report.get("headline") or official
        asked = report["asked"]
        unplayed = asked - report["episodes"]
        own_mean = score["unplayed_wrong"] if unplayed > 0 else score["mean"]
        own = (f"{asked:,}", percent(own_mean), percent(score["error"]))
        part, note = _share(asked, evaluated.benchmark)
        mean = None if score.get("problem") or part else own_mean
        notes.append(note)
        if unplayed > 0:
            notes.append(f"{unplayed} of {asked} not played")
        if score["name"] != ACCURACY:
            notes.append(score["name"])
        if score.get("problem"):
            notes.append(score["problem"])
    cells: list[tuple[str, ...]] = []
    found: list[PublishedScore | None] = [*numbers_of(paper, row)]
    for number in found or [None]:
        theirs = ("-", "-", "-", "")
        if number is not None:
            gap = "-" if mean is None else f"{100 * mean - number.accuracy:+.1f}"
            frames = "-" if number.frames is None else f"{number.frames:g}"
            theirs = (f"{number.accuracy:.1f}", gap, frames, number.table)
        note = "; ".join(filter(None, [*notes, number.note if number else "no published number"]))
        own_frames = "" if report is None else mean_frames(report, number.frame_tokens if number else None)
        cells.append((row.benchmark, row.model, *own, own_frames, *theirs, note))
    return cells


def _share(asked: int, benchmark: QuestionCount | None) -> tuple[bool, str]:
    """Return True if an evaluation asked a part of a benchmark only, and the note about it."""
    if benchmark is None or asked == benchmark.official:
        return False, ""
    without = f", {benchmark.lacking:,} lack their video" if benchmark.lacking else ""
    note = f"{asked:,} of {benchmark.official:,} official questions{without}"
    return benchmark.official - asked > benchmark.bad, note
