"""Reading what a tool call holds: JSON, and numbers in it, which are whatever a model wrote."""

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

from agentic_video.tools.base import ToolError
from agentic_video.types.action import ToolCall
from agentic_video.types.text import is_unicode

MAX_CALL_CHARS = 2_000
"""A call's JSON is refused beyond this many characters: no legal call comes near it."""

MAX_CALL_DEPTH = 4
"""A call's JSON is refused beyond this depth: what is recorded of it must stay easy to write down."""


def read_json_object(text: str, max_chars: int = MAX_CALL_CHARS, max_depth: int = MAX_CALL_DEPTH) -> dict[str, Any]:
    """Read the one JSON object of a call.

    Args:
        text: What a model wrote.
        max_chars: A longer text is refused before it is parsed.
        max_depth: An object that is nested more deeply is refused; 1 is an object of plain values.

    Raises:
        ToolError: It isn't a JSON object, or holds what no call may hold.
    """
    _check_length(text, max_chars)
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
    """Read what stands between the tags of a call.

    Args:
        text: What a model wrote.
        max_depth: As for :func:`read_json_object`.
        nested_text: Whether the arguments may stand in a text of their own, as JSON.

    Raises:
        ToolError: It isn't ``{"name": .., "arguments": {..}}`` with plain values as arguments.
    """
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
    if not all(map(is_unicode, (name, *arguments, *(one for one in arguments.values() if isinstance(one, str))))):
        raise ToolError("the call holds what is no text")
    return ToolCall(name, arguments)


def read_json_values(text: str, max_chars: int = MAX_CALL_CHARS) -> Iterator[Any]:
    """Read JSON values that follow one another, with white space or commas between them, if any.

    Args:
        text: What a model wrote.
        max_chars: A longer text is refused before it is parsed.

    Yields:
        Each value before the next one is parsed.

    Raises:
        ToolError: It isn't JSON, or holds what no call may hold.
    """
    _check_length(text, max_chars)
    rest = text.strip()
    while rest:
        try:
            value, end = _DECODER.raw_decode(rest)
        except (ValueError, RecursionError):
            raise ToolError("the call is not valid JSON") from None
        yield value
        rest = rest[end:].lstrip(" \t\r\n,")


def json_float(text: str) -> float:
    """For json's ``parse_float``: a number that JSON can also hold once it is read, which ``1e999`` is not.

    Raises:
        ToolError: It is too large for a float.
    """
    read = float(text)
    if not math.isfinite(read):
        raise ToolError("a number is too large")
    return read


def _refuse_constant(constant: str) -> NoReturn:
    """For json's ``parse_constant``: Python's JSON knows ``NaN`` and the infinities."""
    raise ToolError(f"{constant} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=json_float)


def _check_length(text: str, max_chars: int) -> None:
    if len(text) > max_chars:
        raise ToolError(f"the call is longer than {max_chars} characters")


def _depth_exceeds(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_depth_exceeds(item, depth - 1) for item in inner)


def number(value: Any, name: str) -> float:
    """A finite number.

    Args:
        value: What a model gave.
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
        value: What a model gave.
        name: As for :func:`number`.
        duration: Length of the video in seconds.

    Raises:
        ToolError: It isn't one; the message gives the video's length.
    """
    time = number(value, name)
    if not 0 <= time <= duration:
        raise ToolError(f"{name} lies outside the video, which lasts {duration:.2f} seconds")
    return time
