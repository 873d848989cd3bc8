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
    """Number of frames of a clip.

    The paper says "8-20 frames" and not what decides. Here the length does: a fixed rate, kept within both limits.

    Args:
        seconds: Length of the clip.
        fps: Frames a second between the limits.
    """
    return min(max(round(seconds * fps), min_frames), max_frames)


def check_clip(
    arguments: Mapping[str, Any], duration: float, fps: float, min_frames: int, max_frames: int, shortest: float = 0.0
) -> ClipRequest:
    """Check a request.

    Args:
        arguments: ``t_start`` and ``t_end`` in seconds, and nothing else.
        duration: Length of the video in seconds.
        fps: See :func:`clip_count`, and so are the limits.
        shortest: Seconds from one frame of the video to the next: a shorter clip is a moment.

    Raises:
        ToolError: The request is illegal; the message says why. Times outside the video are not clamped (paper,
            appendix B.3).
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
