"""``video_zoom``: a dense look at a stretch of the video (VideoZoomer, section 3; released code for the limits)."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentic_video.tools.arguments import json_float
from agentic_video.tools.base import ToolError

MAX_ARGUMENT_CHARS = 2_000
"""A call's JSON is refused beyond this many characters: no legal call comes near it."""

MAX_DEPTH = 4
"""A call's JSON is refused beyond this depth: what is recorded of it must stay easy to write down."""


@dataclass(frozen=True)
class ZoomRequest:
    """A legal request: ``count`` frames from ``start`` to ``end`` (seconds), both ends included."""

    start: float
    end: float
    count: int


def parse_arguments(text: str) -> dict[str, Any]:
    """Read the JSON object of a call.

    Raises:
        ToolError: It isn't a JSON object, or holds what no call may hold.
    """
    if len(text) > MAX_ARGUMENT_CHARS:
        raise ToolError(f"the call is longer than {MAX_ARGUMENT_CHARS} characters")

    def refuse(constant: str) -> Any:
        raise ToolError(f"{constant} is not a number")

    try:
        arguments = json.loads(text, parse_constant=refuse, parse_float=json_float)
    except (ValueError, RecursionError):
        raise ToolError("the call is not valid JSON") from None
    if not isinstance(arguments, dict):
        raise ToolError("the call is not a JSON object")
    if _depth_exceeds(arguments, MAX_DEPTH):
        raise ToolError("the call is nested too deeply")
    return arguments


def _depth_exceeds(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_depth_exceeds(item, depth - 1) for item in inner)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ToolError(f"{name} must be a number")
    try:
        number = float(value)
    except OverflowError:
        raise ToolError(f"{name} is too large") from None
    if not math.isfinite(number):
        raise ToolError(f"{name} must be finite")
    return number


def check_zoom(arguments: Mapping[str, Any], duration: float, max_frames: int) -> ZoomRequest:
    """Check a request and clamp its segment to the video.

    Args:
        arguments: ``segment`` (``[start, end]`` in seconds) and ``fps`` (frames a second).
        duration: Length of the video in seconds.
        max_frames: Most frames of one call.

    Returns:
        ``int(fps * (end - start))`` frames over the clamped segment.

    Raises:
        ToolError: The request is illegal; the message says why.
    """
    segment = arguments.get("segment")
    if not isinstance(segment, list) or len(segment) != 2:
        raise ToolError("segment must be [start_sec, end_sec]")
    start = min(max(_number(segment[0], "segment start"), 0.0), duration)
    end = min(max(_number(segment[1], "segment end"), 0.0), duration)
    fps = _number(arguments.get("fps"), "fps")
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
