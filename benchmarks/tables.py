"""Markdown tables of benchmarks' figures."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> str:
    """A Markdown table; empty without rows. The last columns, as many as ``numbers``, are aligned to the right."""
    if not rows:
        return ""
    marks = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, marks, *rows))


def size(count: float) -> str:
    """Bytes for people."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"
