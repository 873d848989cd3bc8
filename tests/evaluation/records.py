"""Recorded episodes, made by hand."""

from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory


def record(name: str, **rewards: float) -> Record:
    """An episode that ran out of turns."""
    qa = VideoQA(name, "/v.mp4", "which?", "A", options=("x", "y"))
    return Record(qa, Trajectory(name, "s", (), (), EndReason.TURN_LIMIT), rewards or {"acc": 0.0})
