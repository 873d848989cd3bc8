"""Recorded episodes, made by hand."""

from collections.abc import Sequence
from typing import Any

from agentic_video.types.action import Answer
from agentic_video.types.record import Record
from agentic_video.types.row import AnswerType, Interval, VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn


def record(
    name: str = "q",
    answer: str | None = None,
    *,
    source: str = "unknown",
    video: str = "v.mp4",
    kind: AnswerType = "multiple_choice",
    looks: Sequence[Turn] = (),
    end: EndReason = EndReason.TURN_LIMIT,
    windows: tuple[Interval, ...] = (),
    extra: dict[str, Any] | None = None,
    **rewards: float,
) -> Record:
    """An episode that answers after its looks, or ends without an answer."""
    options = ("x", "y") if kind == "multiple_choice" else ()
    qa = VideoQA(name, video, "which?", "A", kind, options, source, windows=windows, extra=extra or {})
    if answer is not None:
        looks, end = (*looks, Turn(answer, Answer(answer), 5)), EndReason.ANSWER
    return Record(qa, Trajectory(name, "s", (), tuple(looks), end), rewards)


def cells(text: str) -> list[list[str]]:
    """Rows of the tables in a Markdown text."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
