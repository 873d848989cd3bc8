"""A reproduction's table: its evaluations beside the published numbers, or beside the synthetic world's figures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentic_video.converters import CONVERTERS
from agentic_video.evaluation.published import PublishedScore, published
from agentic_video.evaluation.report import mean_frames, percent, table
from agentic_video.evaluation.suites import ACCURACY
from agentic_video.launch.reproduce.chain import Chain, Row, Stage
from agentic_video.launch.reproduce.conversions import BAD, lacking, reports_of
from agentic_video.launch.reproduce.reproduction import Reproduction, option_of
from agentic_video.utils.journal import write_whole

TABLE = "table.md"


@dataclass(frozen=True)
class Benchmark:
    """How many questions the rows of a benchmark have.

    Attributes:
        official: As published.
        bad: That the published files hold and nobody can play as they are.
        lacking: That were left out because their videos weren't there.
    """

    official: int
    bad: int = 0
    lacking: int = 0


@dataclass(frozen=True)
class Evaluated:
    """An evaluation of the table.

    Attributes:
        row: What it stands for.
        report: What its ``report.json`` says; None where it wasn't played.
        benchmark: Of its rows; None where no number of questions is published.
    """

    row: Row
    report: Mapping[str, Any] | None = None
    benchmark: Benchmark | None = None


def write_table(reproduction: Reproduction) -> str:
    """Write ``table.md`` into a reproduction's folder.

    Returns:
        Its text.
    """
    found = []
    for stage in reproduction.stages:
        if stage.row is not None and not stage.left_out:
            report = reproduction.path(stage.name, "report")
            benchmark = benchmark_of(reproduction, stage)
            found.append(Evaluated(stage.row, None if report is None else read_report(report), benchmark))
    text = table_text(reproduction.chain, found)
    write_whole(reproduction.options.out / TABLE, [text])
    return text


def read_report(file: Path) -> Mapping[str, Any]:
    """What an evaluation's ``report.json`` says."""
    return dict(json.loads(file.read_text(encoding="utf-8")))


def benchmark_of(reproduction: Reproduction, stage: Stage) -> Benchmark | None:
    """How many questions the rows of an evaluation have; None where that isn't published of all of them.

    It is what the conversions of its rows report, or, where rows without a report are given, what converters know.
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
        found.append(Benchmark(official, sum(counts.get(kind, 0) for kind in BAD), lacking(report)))
    official, bad, lack = (sum(getattr(one, name) for one in found) for name in ("official", "bad", "lacking"))
    return Benchmark(official, bad, lack) if found else None


def _official(maker: Stage) -> int | None:
    """The published number of questions of the split that a conversion makes."""
    converter = CONVERTERS.get(maker.words[1])
    if converter is None:
        return None
    split = converter.splits.get(option_of(maker.words, "--split") or next(iter(converter.splits)))
    return split.rows if split else None


def table_text(chain: Chain, rows: Sequence[Evaluated]) -> str:
    """The table as Markdown.

    Args:
        chain: The reproduction's; a rehearsal's table has no published number.
        rows: Its evaluations.
    """
    if chain.mode == "laptop":
        head = [
            f"# {chain.paper}: a rehearsal on the synthetic world",
            "",
            "Tiny models on made-up videos, after a few steps. **No figure here is the paper's, and none can be",
            f"compared with one.** The last column has the synthetic world's own figures ({chain.figures}).",
            "",
        ]
        if left_out := [stage.name for stage in chain.stages if stage.left_out]:
            head[-1:] = ["", f"Not rehearsed, as the plan says why: {', '.join(left_out)}.", ""]
        columns: tuple[str, ...] = ("evaluated", "accuracy %", "±", "episodes", "synthetic world %")
        cells = [_rehearsed(one.row, one.report) for one in rows]
        return "\n".join([*head, *table(columns, cells)]) + "\n"
    head = [
        f"# {chain.paper}: reproduced, beside the published numbers",
        "",
        "Accuracy in percent; ± is the standard error of this run. Rows that couldn't be played count as wrong.",
        "A benchmark that was asked in part isn't compared: the note says how many of its questions were asked.",
        "",
    ]
    columns = ("benchmark", "model", "questions", "this run", "±", "frames")
    columns += ("published", "difference", "frames", "where", "note")
    cells = [cell for one in rows for cell in _compared(chain.paper, one)]
    return "\n".join([*head, *table(columns, cells)]) + "\n"


def _rehearsed(row: Row, report: Mapping[str, Any] | None) -> tuple[str, ...]:
    figure = "-" if row.figure is None else f"{row.figure:.1f}"
    if report is None:
        return (row.benchmark, "not played", "", "", figure)
    official = report["official"]
    return (
        row.benchmark,
        percent(official["mean"]),
        percent(official["error"]),
        str(official["episodes"]),
        figure,
    )


def numbers_of(paper: str, row: Row) -> list[PublishedScore]:
    """The published numbers that a row is compared with: the paper's own, of its usual number of calls, and of as many
    frames as the row says."""
    return [
        one
        for one in published()
        if (one.paper, one.benchmark, one.model) == (paper, row.benchmark, row.model)
        and one.calls is None
        and row.table in ("", one.table)
        and row.frames in (None, one.frames)
    ]


def _compared(paper: str, evaluated: Evaluated) -> list[tuple[str, ...]]:
    """A row of the table, one for each published number of the same model on the same benchmark."""
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
    for one in found or [None]:
        said = ("-", "-", "-", "")
        if one is not None:
            gap = "-" if mean is None else f"{100 * mean - one.accuracy:+.1f}"
            said = (f"{one.accuracy:.1f}", gap, "-" if one.frames is None else f"{one.frames:g}", one.table)
        note = "; ".join(filter(None, [*notes, one.note if one else "no published number"]))
        frames = "" if report is None else mean_frames(report, one.frame_tokens if one else None)
        cells.append((row.benchmark, row.model, *own, frames, *said, note))
    return cells


def _share(asked: int, benchmark: Benchmark | None) -> tuple[bool, str]:
    """Whether an evaluation asked a part of a benchmark only, and what is said of that; empty where it asked all."""
    if benchmark is None or asked == benchmark.official:
        return False, ""
    without = f", {benchmark.lacking:,} lack their video" if benchmark.lacking else ""
    said = f"{asked:,} of {benchmark.official:,} official questions{without}"
    return benchmark.official - asked > benchmark.bad, said
