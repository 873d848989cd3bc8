"""``choose frames between A and B``: a closer look at a stretch of the video, by frame numbers (FrameThinker, section
3.1; released code for the limits)."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from agentic_video.tools.base import ToolError

# Nine digits are more frames than any video has, and are far from int()'s own limit.
_REQUEST = re.compile(r"choose\s+frames\s+between\s+([0-9]{1,9})\s+and\s+([0-9]{1,9})[\s.]*")


def parse_choice(text: str) -> dict[str, int] | None:
    """The arguments ``start`` and ``end`` (frame numbers) of a request; None when the text is no such request."""
    match = _REQUEST.fullmatch(text)
    return {"start": int(match[1]), "end": int(match[2])} if match else None


def chosen_indices(arguments: Mapping[str, Any], num_frames: int, count: int) -> list[int]:
    """Check a request and pick its frames.

    Args:
        arguments: ``start`` and ``end``, frame numbers.
        num_frames: Frames of the video; an end beyond them is clipped to ``num_frames``.
        count: Frames of one look.

    Returns:
        The whole parts of ``linspace(start + 1, end - 1, count)``, duplicates removed.

    Raises:
        ToolError: The stretch doesn't hold more than ``count`` frames of the video, so that a look wouldn't leave any
            of them out (released code).
    """
    start, end = arguments.get("start"), arguments.get("end")
    for name, value in (("start", start), ("end", end)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ToolError(f"{name} must be a frame number")
    assert isinstance(start, int) and isinstance(end, int)
    end = min(end, num_frames)
    if start >= end - count:
        raise ToolError(f"choose a stretch of more than {count} frames within the video's {num_frames}")
    return sorted({int(index) for index in np.linspace(start + 1, end - 1, count)})
