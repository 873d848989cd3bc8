"""``FrameAt``: one large frame of a moment (FrameMind, section 3.2 and appendix B.3)."""

from collections.abc import Mapping
from typing import Any

from agentic_video.tools.arguments import moment
from agentic_video.tools.base import ToolError

NAME = "FrameAt"


def check_frame_at(arguments: Mapping[str, Any], duration: float) -> float:
    """Check a request.

    Args:
        arguments: ``t`` in seconds, and nothing else.
        duration: Length of the video in seconds.

    Returns:
        The time in seconds; the frame closest to it is meant.

    Raises:
        ToolError: The request is illegal; the message says why.
    """
    if set(arguments) != {"t"}:
        raise ToolError(f"{NAME} takes one argument, t")
    return moment(arguments["t"], "t", duration)
