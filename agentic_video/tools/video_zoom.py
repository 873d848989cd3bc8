"""``video_zoom``: a dense look at a stretch of the video (VideoZoomer, section 3; released code for the limits)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentic_video.tools.arguments import number
from agentic_video.tools.base import ToolError


@dataclass(frozen=True)
class ZoomRequest:
    """A legal request: ``count`` frames from ``start`` to ``end`` (seconds), both ends included."""

    start: float
    end: float
    count: int


def check_zoom(arguments: Mapping[str, Any], duration: float, max_frames: int) -> ZoomRequest:
    """Check ``segment`` and ``fps``: ``int(fps * (end - start))`` frames over the segment clamped to the video."""
    segment = arguments.get("segment")
    if not isinstance(segment, list) or len(segment) != 2:
        raise ToolError("segment must be [start_sec, end_sec]")
    start = min(max(number(segment[0], "segment start"), 0.0), duration)
    end = min(max(number(segment[1], "segment end"), 0.0), duration)
    fps = number(arguments.get("fps"), "fps")
    if fps <= 0:
        raise ToolError("fps must be above 0")
    if start >= end:
        raise ToolError(f"the segment is empty within the video, which lasts {duration:.2f} seconds")
    asked = fps * (end - start)
    if asked >= max_frames + 1:
        raise ToolError(f"more than {max_frames} frames asked for: lower fps or shorten the segment")
    count = int(asked)
    if count < 1:
        raise ToolError("less than one frame asked for: raise fps or widen the segment")
    return ZoomRequest(start, end, count)
