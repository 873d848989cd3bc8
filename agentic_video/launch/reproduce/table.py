"""A reproduction's table: its evaluations beside the published numbers, or beside the synthetic world's figures."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentic_video.evaluation.published import Published, published
from agentic_video.evaluation.report import percent, table
from agentic_video.evaluation.suites import ACCURACY
from agentic_video.launch.reproduce.chain import Chain, Row
from agentic_video.launch.reproduce.reproduction import Reproduction
from agentic_video.utils.journal import write_whole

TABLE = "table.md"


def write_table(reproduction: Reproduction) -> str:
    """Write ``table.md`` into a reproduction's folder.

    Returns:
        Its text.
    """
    found: list[tuple[Row, Mapping[str, Any] | None]] = []
    for stage in reproduction.stages:
        if stage.row is not None and not stage.left_out:
            report = reproduction.path(stage.name, "report")
            found.append((stage.row, None if report is None else read_report(report)))
    text = table_text(reproduction.chain, found)
    write_whole(reproduction.options.out / TABLE, [text])
    return text


def read_report(file: Path) -> Mapping[str, Any]:
    """What an evaluation's ``report.json`` says."""
    return dict(json.loads(file.read_text(encoding="utf-8")))


def table_text(chain: Chain, rows: list[tuple[Row, Mapping[str, Any] | None]]) -> str:
    """The table as Markdown.

    Args:
        chain: The reproduction's; a rehearsal's table has no published number.
        rows: What each evaluation stands for, and its report; None for one that wasn't played.
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
        cells = [_rehearsed(row, report) for row, report in rows]
        return "\n".join([*head, *table(columns, cells)]) + "\n"
    head = [
        f"# {chain.paper}: reproduced, beside the published numbers",
        "",
        "Accuracy in percent; ± is the standard error of this run. Rows that couldn't be played count as wrong.",
        "",
    ]
    columns = ("benchmark", "model", "this run", "±", "frames", "published", "difference", "frames", "where", "note")
    cells = [one for row, report in rows for one in _compared(chain.paper, row, report)]
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


def numbers_of(paper: str, row: Row) -> list[Published]:
    """The published numbers that a row is compared with: the paper's own, of its usual number of calls."""
    return [
        one
        for one in published()
        if (one.paper, one.benchmark, one.model) == (paper, row.benchmark, row.model)
        and one.calls is None
        and row.table in ("", one.table)
    ]


def _compared(paper: str, row: Row, report: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    """A row of the table, one for each published number of the same model on the same benchmark."""
    mean, own, notes = None, ("not played", "", ""), []
    if report is not None:
        official = {"name": ACCURACY, **report["official"], "unplayed_wrong": report["official_unplayed_wrong"]}
        score = report.get("headline") or official
        unplayed = report["asked"] - report["episodes"]
        own_mean = score["unplayed_wrong"] if unplayed > 0 else score["mean"]
        frames = report["per_episode"].get("frames")
        own = (percent(own_mean), percent(score["error"]), f"{frames['mean']:.1f}" if frames else "-")
        mean = None if score.get("problem") else own_mean
        if unplayed > 0:
            notes.append(f"{unplayed} of {report['asked']} not played")
        if score["name"] != ACCURACY:
            notes.append(score["name"])
        if score.get("problem"):
            notes.append(score["problem"])
    cells: list[tuple[str, ...]] = []
    found: list[Published | None] = [*numbers_of(paper, row)]
    for one in found or [None]:
        said = ("-", "-", "-", "")
        if one is not None:
            gap = "-" if mean is None else f"{100 * mean - one.accuracy:+.1f}"
            said = (f"{one.accuracy:.1f}", gap, "-" if one.frames is None else f"{one.frames:g}", one.table)
        note = "; ".join(filter(None, [*notes, one.note if one else "no published number"]))
        cells.append((row.benchmark, row.model, *own, *said, note))
    return cells
