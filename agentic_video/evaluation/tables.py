"""Markdown tables of reports."""

from collections.abc import Iterable, Sequence
from typing import Any


def percent(value: float | None) -> str:
    """A share as percent with one decimal."""
    return "-" if value is None else f"{100 * value:.1f}"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Lines of a table; columns are padded, so that a terminal shows it as well."""
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def section(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """A blank line and a table; nothing without rows."""
    rows = list(rows)
    return ["", *table(header, rows)] if rows else []
