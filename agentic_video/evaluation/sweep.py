"""Sweeps: the same evaluation with more and more frames, or calls; a picture of accuracy."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentic_video.evaluation.ablations import with_calls, with_frames
from agentic_video.evaluation.published import published_by_calls
from agentic_video.evaluation.results import read_settings, same_settings
from agentic_video.systems.base import System
from agentic_video.utils.errors import SetupError


@dataclass(frozen=True)
class Point:
    """One evaluation of a sweep."""

    value: int  # what was set
    frames: float  # mean frames of an episode
    accuracy: float  # share of right answers, or the score that the benchmark's report has instead (M-Avg)
    error: float | None = None  # standard error of it, where there is one


def swept(system: System, kind: str, value: int) -> System:
    """The system with so many frames, or so many turns with a call at most.

    ``frames`` are those of the first view; where there is none, the most of one call. An episode may then show as many
    more images as its first view has more."""
    try:
        return with_calls(system, value) if kind == "calls" else with_frames(system, value)
    except ValueError as error:
        instead = "; evaluate it once for each setting instead, each with an --out of its own"
        raise SetupError(f"--sweep {kind}: {error}{instead if kind == 'frames' else ''}") from error


def point(value: int, result: Mapping[str, Any]) -> Point | None:
    """A point from a report's figures, of the score that papers report; None where there is none."""
    frames, score = result["per_episode"].get("frames"), result.get("headline") or result["official"]
    if frames is None or score["mean"] is None:
        return None
    return Point(value, frames["mean"], score["mean"], score["error"])


def folder_name(kind: str, curve: str, value: int) -> str:
    """The folder of one value, below the sweep's."""
    return f"{kind}-{curve}-{value:03d}"


def read_curves(
    out: Path, kind: str, curve: str, settings: Callable[[int], Mapping[str, Any] | None]
) -> dict[str, list[Point]]:
    """The points of a sweep, whichever run of it they are from, and of the other curves of its kind on the same data
    that the folder holds: a baseline's in addition to an agent's, say.

    A folder may also hold points of other checkpoints, or of other budgets. Points of the sweep itself must have its
    settings; another curve, whose model may be another one, is that of its latest evaluation."""
    found: dict[str, list[_SweepRun]] = {}
    for folder in sorted(out.glob(f"{kind}-*-*")):
        name, _, value = folder.name.removeprefix(f"{kind}-").rpartition("-")
        file = folder / "report.json"
        if value.isdigit() and file.is_file():
            found.setdefault(name, []).append(_SweepRun(int(value), file, read_settings(folder)))
    own = []
    for run in found.get(curve, ()):
        expected = settings(run.value)
        if expected is not None and same_settings(run.settings, expected):
            own.append(run)
    curves = {}
    for name, others in found.items():
        kept = own
        if name != curve:
            latest = max(others, key=lambda run: run.file.stat().st_mtime)
            same_data = not own or all(
                latest.settings.get(key) == own[0].settings.get(key) for key in ("data", "benchmark")
            )
            kept = [run for run in others if same_data and same_settings(run.unswept, latest.unswept)]
        points = (point(run.value, json.loads(run.file.read_text(encoding="utf-8"))) for run in kept)
        if kept:
            curves[name] = sorted(filter(None, points), key=lambda point: point.value)
    return curves


@dataclass(frozen=True)
class _SweepRun:
    """An evaluation of a sweep, as a folder has it."""

    value: int
    file: Path
    settings: Mapping[str, Any]

    @property
    def unswept(self) -> dict[str, Any]:
        """Its settings but for those that a sweep changes."""
        rest = {key: value for key, value in self.settings.items() if key not in ("system", "limits", "prompts")}
        return rest | {"class": self.settings.get("system", {}).get("class")}


def draw(
    kind: str, curves: Mapping[str, Sequence[Point]], benchmark: str, file: Path, title: str | None = None
) -> None:
    """Draw accuracy (percent) by mean frames of an episode, or by most calls allowed, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    figure, axes = pyplot.subplots(figsize=(7, 3.6), dpi=120)
    for (name, points), colour in zip(curves.items(), ("#1f4e8c", "#c8553d", "#3a7d44", "#7b5ea7"), strict=False):
        across = [point.frames if kind == "frames" else point.value for point in points]
        errors = [100 * (point.error or 0.0) for point in points]
        heights = [100 * point.accuracy for point in points]
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
