"""Sweeps: the same evaluation with more and more frames, or calls; a picture of accuracy."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentic_video.evaluation.published import published_by_calls
from agentic_video.systems.base import System
from agentic_video.utils.errors import SetupError


@dataclass(frozen=True)
class Point:
    """One evaluation of a sweep.

    Attributes:
        value: What was set.
        frames: Mean frames of an episode.
        accuracy: Share of right answers.
        error: Standard error of it, where there is one.
    """

    value: int
    frames: float
    accuracy: float
    error: float | None = None


def swept(system: System, kind: str, value: int) -> System:
    """The system with so many frames, or so many turns with a call at most.

    ``frames`` are those of the first view; where there is none, the most of one call. An episode may then show as many
    more images as its first view has more.

    Raises:
        SetupError: The system can't be changed in this way; the message says what to do.
    """
    try:
        return system.with_calls(value) if kind == "calls" else system.with_frames(value)
    except ValueError as error:
        instead = "; evaluate it once for each setting instead, each with an --out of its own"
        raise SetupError(f"--sweep {kind}: {error}{instead if kind == 'frames' else ''}") from error


def point(value: int, result: Mapping[str, Any]) -> Point | None:
    """A point from a report's figures; None where nothing was graded."""
    frames, official = result["per_episode"].get("frames"), result["official"]
    if frames is None or official["mean"] is None:
        return None
    return Point(value, frames["mean"], official["mean"], official["error"])


def folder_name(kind: str, curve: str, value: int) -> str:
    """The folder of one value, below the sweep's.

    Args:
        curve: What plays, e.g. ``agent`` or ``baseline``: each is a curve of the picture.
    """
    return f"{kind}-{curve}-{value:03d}"


def read_curves(out: Path, kind: str) -> dict[str, list[Point]]:
    """The points of all sweeps of one kind that a folder holds: a baseline's beside an agent's, say."""
    curves: dict[str, list[Point]] = {}
    for folder in sorted(out.glob(f"{kind}-*-*")):
        name, _, value = folder.name.removeprefix(f"{kind}-").rpartition("-")
        file = folder / "report.json"
        if value.isdigit() and file.is_file():
            found = point(int(value), json.loads(file.read_text(encoding="utf-8")))
            curves.setdefault(name, []).extend([found] if found else [])
    return {name: sorted(points, key=lambda one: one.value) for name, points in curves.items()}


def draw(
    kind: str, curves: Mapping[str, Sequence[Point]], benchmark: str, file: Path, title: str | None = None
) -> None:
    """Draw accuracy (percent) by mean frames of an episode, or by most calls allowed, as a PNG.

    Args:
        curves: Points by name, in order of what was set.
        benchmark: By whose name published numbers go.
        title: Of the picture; None takes the benchmark's name.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    figure, axes = pyplot.subplots(figsize=(7, 3.6), dpi=120)
    for (name, points), colour in zip(curves.items(), ("#1f4e8c", "#c8553d", "#3a7d44", "#7b5ea7"), strict=False):
        across = [one.frames if kind == "frames" else one.value for one in points]
        errors = [100 * (one.error or 0.0) for one in points]
        heights = [100 * one.accuracy for one in points]
        axes.errorbar(across, heights, errors, color=colour, linewidth=2, marker="o", capsize=3, label=name)
    if kind == "calls" and (paper := published_by_calls(benchmark)):
        axes.plot(
            [row.calls or 0 for row in paper],
            [row.accuracy for row in paper],
            color="#9db7d5",
            linestyle="--",
            marker=".",
            label=f"{paper[0].paper} (paper)",
        )
    label = "mean frames of an episode" if kind == "frames" else "most calls allowed"
    axes.set(xlabel=label, ylabel="accuracy (%)", title=title or benchmark)
    if kind == "calls":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)
