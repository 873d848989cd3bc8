"""Read a tool call, which is whatever a model wrote: JSON, numbers, texts and times; illegal ones are ToolErrors."""

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

from agentic_video.tools.base import ToolError
from agentic_video.types.action import ToolCall
from agentic_video.types.text import is_unicode

MAX_CALL_CHARS = 2_000
"""No legal call comes near it."""
MAX_CALL_DEPTH = 4
"""A deeper call couldn't be recorded."""


def read_json_object(text: str, max_chars: int = MAX_CALL_CHARS, max_depth: int = MAX_CALL_DEPTH) -> dict[str, Any]:
    """Read the one JSON object of a call; ``max_depth`` 1 is an object of plain values."""
    if len(text) > max_chars:
        raise ToolError(f"the call is longer than {max_chars} characters")
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise ToolError("the call is not valid JSON") from None
    if not isinstance(value, dict):
        raise ToolError("the call is not a JSON object")
    if _depth_exceeds(value, max_depth):
        raise ToolError("the call is nested too deeply")
    return value


def read_call(text: str, max_depth: int = MAX_CALL_DEPTH, *, nested_text: bool = False) -> ToolCall:
    """Read ``{"name": .., "arguments": {..}}`` with plain values; with ``nested_text`` arguments may be a JSON text."""
    call = read_json_object(text, max_depth=max_depth)
    name, arguments = call.get("name"), call.get("arguments")
    if not isinstance(name, str):
        raise ToolError("the call has no name")
    if nested_text and isinstance(arguments, str):
        arguments = read_json_object(arguments, max_depth=max_depth)
    if not isinstance(arguments, dict):
        raise ToolError("the call has no arguments")
    # What follows goes into the episode's record, which can't hold deep nesting or half a character ("\ud800").
    if any(isinstance(value, dict | list) for value in arguments.values()):
        raise ToolError("an argument must be a number or a text")
    if not all(map(is_unicode, (name, *arguments, *(value for value in arguments.values() if isinstance(value, str))))):
        raise ToolError("the call holds what is no text")
    return ToolCall(name, arguments)


def read_json_values(text: str, max_chars: int = MAX_CALL_CHARS) -> Iterator[Any]:
    """Read JSON values one after another, with white space or commas between them, if any."""
    if len(text) > max_chars:
        raise ToolError(f"the call is longer than {max_chars} characters")
    rest = text.strip()
    while rest:
        try:
            value, end = _DECODER.raw_decode(rest)
        except (ValueError, RecursionError):
            raise ToolError("the call is not valid JSON") from None
        yield value
        rest = rest[end:].lstrip(" \t\r\n,")


def json_float(text: str) -> float:
    """Parse a number for json; one too large for a float, such as ``1e999``, is refused."""
    read = float(text)
    if not math.isfinite(read):
        raise ToolError("a number is too large")
    return read


def _refuse_constant(constant: str) -> NoReturn:
    raise ToolError(f"{constant} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=json_float)


def _depth_exceeds(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_depth_exceeds(item, depth - 1) for item in inner)


def number(value: Any, name: str) -> float:
    """Read a finite number; ``name`` is the error's word for it, never a text of the model's."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ToolError(f"{name} must be a number")
    try:
        read = float(value)
    except OverflowError:
        raise ToolError(f"{name} is too large") from None
    if not math.isfinite(read):
        raise ToolError(f"{name} must be finite")
    return read


def integer(value: Any, name: str, kind: str = "an integer") -> int:
    """Read an integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ToolError(f"{name} must be {kind}")
    return value


def moment(value: Any, name: str, duration: float) -> float:
    """Read a time within the video, in seconds, both ends included."""
    time = number(value, name)
    if not 0 <= time <= duration:
        raise ToolError(f"{name} lies outside the video, which lasts {duration:.2f} seconds")
    return time
