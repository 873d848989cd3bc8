"""Reading the numbers of a tool call, which are whatever a model wrote."""

import math
from typing import Any

from agentic_video.tools.base import ToolError


def json_float(text: str) -> float:
    """For json's ``parse_float``: a number that JSON can also hold once it is read, which ``1e999`` is not.

    Raises:
        ToolError: It is too large for a float.
    """
    read = float(text)
    if not math.isfinite(read):
        raise ToolError("a number is too large")
    return read


def number(value: Any, name: str) -> float:
    """A finite number.

    Args:
        name: How the error names the value; never a text of the model's.

    Raises:
        ToolError: It isn't one: a string, a boolean, NaN, an infinity, too large for a float.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ToolError(f"{name} must be a number")
    try:
        read = float(value)
    except OverflowError:
        raise ToolError(f"{name} is too large") from None
    if not math.isfinite(read):
        raise ToolError(f"{name} must be finite")
    return read


def moment(value: Any, name: str, duration: float) -> float:
    """A time within the video, in seconds; both ends belong to it.

    Args:
        name: As for :func:`number`.
        duration: Length of the video in seconds.

    Raises:
        ToolError: It isn't one; the message gives the video's length.
    """
    time = number(value, name)
    if not 0 <= time <= duration:
        raise ToolError(f"{name} lies outside the video, which lasts {duration:.2f} seconds")
    return time
