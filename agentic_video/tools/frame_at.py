"""``FrameAt``: one large frame of a moment (FrameMind, section 3.2 and appendix B.3)."""

from collections.abc import Mapping
from typing import Any

from agentic_video.tools.arguments import moment
from agentic_video.tools.base import ToolError

NAME = "FrameAt"


def check_frame_at(arguments: Mapping[str, Any], duration: float) -> float:
    """Check a request with ``t`` alone; returns its time in seconds."""
    if set(arguments) != {"t"}:
        raise ToolError(f"{NAME} takes one argument, t")
    return moment(arguments["t"], "t", duration)
