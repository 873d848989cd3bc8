"""``VideoClip``: evenly spaced frames of a stretch of the video (FrameMind, section 3.2 and appendix B.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentic_video.tools.arguments import moment
from agentic_video.tools.base import ToolError

NAME = "VideoClip"


@dataclass(frozen=True)
class ClipRequest:
    """A legal request: ``count`` frames from ``start`` to ``end`` (seconds), both ends included."""

    start: float
    end: float
    count: int


def clip_count(seconds: float, fps: float, min_frames: int, max_frames: int) -> int:
    """Frames of a clip: the paper has "8-20 frames" without a rule; here a fixed rate within both limits."""
    return min(max(round(seconds * fps), min_frames), max_frames)


def check_clip(
    arguments: Mapping[str, Any], duration: float, fps: float, min_frames: int, max_frames: int, shortest: float = 0.0
) -> ClipRequest:
    """Check ``t_start`` and ``t_end`` in seconds; times outside the video are not clamped (paper, appendix B.3).

    A clip shorter than ``shortest``, the time between two frames, is refused.
    """
    if set(arguments) != {"t_start", "t_end"}:
        raise ToolError(f"{NAME} takes two arguments, t_start and t_end")
    start = moment(arguments["t_start"], "t_start", duration)
    end = moment(arguments["t_end"], "t_end", duration)
    if start >= end:
        raise ToolError("t_start must be before t_end")
    if end - start < shortest:
        raise ToolError(f"the clip must last {shortest:.3f} seconds at least, from one frame to the next")
    return ClipRequest(start, end, clip_count(end - start, fps, min_frames, max_frames))
