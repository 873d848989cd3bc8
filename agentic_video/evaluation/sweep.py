"""Sweeps: the same evaluation with more and more frames, or calls; a picture of accuracy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from agentic_video.evaluation.baseline import Baseline
from agentic_video.evaluation.report import Published, published_for
from agentic_video.systems.base import System
from agentic_video.systems.framemind.ladder import FrameSampling
from agentic_video.utils.errors import SetupError

KINDS = ("frames", "calls")
FRAME_FIELDS = ("frames", "overview_max_frames", "overview_frames", "long_overview_frames")
"""Fields of systems that say how many frames are shown before the first turn; a :class:`FrameSampling` says so too."""
CALL_FRAMES = "max_frames"
"""Field of systems that show no frame before the first turn: the most of one call."""


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


def read_values(kind: str, text: str) -> list[int]:
    """The values of a sweep, e.g. ``8,16,32``.

    Raises:
        SetupError: The kind is unknown, or the values aren't numbers that it takes.
    """
    least = {"frames": 1, "calls": 0}.get(kind)
    if least is None:
        raise SetupError(f"--sweep {kind}: there are {' and '.join(KINDS)}, e.g. --sweep frames 8,16,32")
    try:
        values = sorted({int(value) for value in text.split(",")})
    except ValueError:
        values = []
    if not values or values[0] < least:
        raise SetupError(f"--sweep {kind} {text}: expected whole numbers from {least}, e.g. {kind} 1,2,4")
    return values


def swept(system: System, kind: str, value: int) -> System:
    """The system with so many frames, or so many turns with a call at most.

    ``frames`` are those of the first view; where there is none, the most of one call. An episode may then show as many
    more images as its first view has more.

    Raises:
        SetupError: The system can't be changed in this way; the message says what to do.
    """
    if kind == "calls":
        if isinstance(system, Baseline):
            raise SetupError("--sweep calls: the baseline makes no calls")
        return replace(system, max_turns=value + 1) if value else system.direct()  # type: ignore[type-var]
    if isinstance(system, Baseline):
        return replace(system, frames=value)
    now = {one.name: getattr(system, one.name) for one in fields(system)}  # type: ignore[arg-type]
    if now.get("overview") == "none":
        changes: dict[str, Any] = {CALL_FRAMES: value} if CALL_FRAMES in now else {}
        more = 0
    else:
        shown = [now[name] for name in FRAME_FIELDS if name in now]
        shown += [view.frames for view in now.values() if isinstance(view, FrameSampling)]
        changes = dict.fromkeys(set(now).intersection(FRAME_FIELDS), value)
        changes |= {name: replace(view, frames=value) for name, view in now.items() if isinstance(view, FrameSampling)}
        more = max(0, value - max(shown, default=value))
    if not changes:
        raise SetupError(
            f"--sweep frames: {system.name} has no such number of frames (fields {', '.join(FRAME_FIELDS)}, "
            f"{CALL_FRAMES}); evaluate it once for each setting instead, each with an --out of its own"
        )
    return replace(system, **changes, max_images=system.max_images + more)  # type: ignore[type-var]


def point(value: int, result: Mapping[str, Any]) -> Point | None:
    """A point from a report's figures; None where nothing was graded."""
    frames, official = result["per_episode"].get("frames"), result["official"]
    if frames is None or official["mean"] is None:
        return None
    return Point(value, frames["mean"], official["mean"], official["error"])


def paper_points(benchmark: str) -> list[Published]:
    """Published numbers of a benchmark by most calls allowed."""
    return sorted(
        (row for row in published_for(benchmark) if row.calls is not None),
        key=lambda row: row.calls or 0,
    )


def draw(kind: str, curves: Mapping[str, Sequence[Point]], benchmark: str, file: Path) -> None:
    """Accuracy (percent) by mean frames of an episode, or by most calls allowed, as a PNG.

    Args:
        curves: Points by name, in order of what was set.
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
    if kind == "calls" and (paper := paper_points(benchmark)):
        axes.plot([row.calls or 0 for row in paper], [row.accuracy for row in paper], color="#9db7d5", linestyle="--",
                  marker=".", label=f"{paper[0].paper} (paper)")  # fmt: skip
    label = "mean frames of an episode" if kind == "frames" else "most calls allowed"
    axes.set(xlabel=label, ylabel="accuracy (%)", title=benchmark)
    if kind == "calls":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)
