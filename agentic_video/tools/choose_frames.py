"""``choose frames between A and B``: a closer look at a stretch of the video, by frame numbers (FrameThinker, section
3.1; released code for the limits)."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from agentic_video.tools.arguments import integer
from agentic_video.tools.base import ToolError

# Nine digits are more frames than any video has, and are far from int()'s own limit.
_REQUEST = re.compile(r"choose\s+frames\s+between\s+([0-9]{1,9})\s+and\s+([0-9]{1,9})[\s.]*")


def parse_choice(text: str) -> dict[str, int] | None:
    """The arguments ``start`` and ``end`` (frame numbers) of a request; None when the text is no such request."""
    match = _REQUEST.fullmatch(text)
    return {"start": int(match[1]), "end": int(match[2])} if match else None


def chosen_indices(arguments: Mapping[str, Any], num_frames: int, count: int) -> list[int]:
    """Check a request of two frame numbers and pick ``linspace(start + 1, end - 1, count)``, cut to whole numbers.

    An end beyond the video is clipped. The stretch must hold more than ``count`` frames, so that a look leaves some out
    (released code).
    """
    start, end = (integer(arguments.get(name), name, "a frame number") for name in ("start", "end"))
    if min(start, end) < 0:
        raise ToolError(f"{'start' if start < 0 else 'end'} must be a frame number")
    end = min(end, num_frames)
    if start >= end - count:
        raise ToolError(f"choose a stretch of more than {count} frames within the video's {num_frames}")
    return sorted({int(index) for index in np.linspace(start + 1, end - 1, count)})
