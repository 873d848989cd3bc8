"""``get frame number at time MM:SS``: from a clock time to the number of the frame (FrameThinker, section 3.1; released
code for the arithmetic)."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentic_video.tools.base import ToolError

_REQUEST = re.compile(r"get\s+frame\s+number\s+at\s+time\s+([0-9]{1,3}:[0-9]{2})[\s.]*")
_TIME = re.compile(r"([0-9]{1,3}):([0-9]{2})")
_REPLY = re.compile(r"\bis: ([0-9]{1,12})\b")


def parse_lookup(text: str) -> dict[str, str] | None:
    """The argument ``time`` (``MM:SS``, minutes with up to three digits) of a request; None for other texts."""
    match = _REQUEST.fullmatch(text)
    return {"time": match[1]} if match else None


def seconds_of(time: Any) -> int:
    """Seconds of a clock time ``MM:SS``."""
    match = _TIME.fullmatch(time) if isinstance(time, str) else None
    if match is None:
        raise ToolError("the time must be MM:SS")
    return 60 * int(match[1]) + int(match[2])


def number_at(arguments: Mapping[str, Any], fps: float, first_time: float = 0.0) -> int:
    """``int(seconds * fps)``, also beyond the video's end (released code); frame 0 before ``first_time``."""
    # The rate is a quotient: 42 s at 9.999999999 frames a second are 420 frames, not 419.
    return math.floor(max(seconds_of(arguments.get("time")) - first_time, 0.0) * fps + 1e-6)


def reply_text(time: str, number: int) -> str:
    """Reply to the agent: the time, and ``is: N`` (released code; wording our own)."""
    return f"The frame at {time} is: {number}"


def replied_number(parts: Sequence[object]) -> int | None:
    """The frame number in a recorded reply (see :func:`reply_text`), or None when there is none."""
    match = _REPLY.search(parts[0]) if parts and isinstance(parts[0], str) else None
    return int(match[1]) if match else None
