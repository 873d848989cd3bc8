"""TimeSearch-R's grammar: think, then one call as JSON or the answer; frames after their time in seconds."""

from collections.abc import Sequence
from typing import Any

from agentic_video.systems.blocks import Block, read_blocks
from agentic_video.systems.shown import FramesAs, one_clip
from agentic_video.tools.arguments import read_json_object
from agentic_video.tools.base import ToolError
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Part

CALL_CLOSE, ANSWER_CLOSE = "</tool_call>", "</answer>"
_ARGUMENTS = 3
"""Depth of a call's JSON: the call, its arguments; a list or an object in them is refused below."""


def first_block(text: str) -> Block | None:
    """The first closed call or answer of a turn, wherever it stands (released code); None where there is neither."""
    return next(iter(read_blocks(text, ("tool_call", "answer")).blocks), None)


def parse_turn(text: str) -> Action:
    """Read a turn: its first call or answer counts, whichever comes first."""
    found = first_block(text)
    if found is None:
        return Illegal("neither a call nor an answer")
    if found.tag == "answer":
        return Answer(found.body.strip())
    try:
        return Calls((read_call(found.body),))
    except ToolError as error:
        return Illegal(str(error))


def read_call(body: str) -> ToolCall:
    """Read what stands between the tags of a call.

    Raises:
        ToolError: It isn't ``{"name": .., "arguments": {..}}`` with plain values as arguments; these may stand in a
            text of their own, as JSON (released code).
    """
    call = read_json_object(body, max_depth=_ARGUMENTS)
    name, arguments = call.get("name"), call.get("arguments")
    if not isinstance(name, str):
        raise ToolError("the call has no name")
    if isinstance(arguments, str):
        arguments = read_json_object(arguments, max_depth=_ARGUMENTS)
    if not isinstance(arguments, dict):
        raise ToolError("the call has no arguments")
    _check_plain(name, arguments)
    return ToolCall(name, arguments)


def _check_plain(name: str, arguments: dict[str, Any]) -> None:
    """Refuse what an episode's record can't hold: deep nesting, and half a character (``"\\ud800"``)."""
    if any(isinstance(value, dict | list) for value in arguments.values()):
        raise ToolError("an argument must be a number or a text")
    try:
        for text in (name, *arguments, *(value for value in arguments.values() if isinstance(value, str))):
            text.encode()
    except UnicodeEncodeError:
        raise ToolError("the call holds what is no text") from None


def labelled(frames: Sequence[Frame], frames_as: FramesAs = "images") -> tuple[Part, ...]:
    """Each image after its real time in seconds: ``12.5s`` (released code); a clip, whose times the model is given
    otherwise, without any."""
    if clip := one_clip(frames_as, frames):
        return (clip,)
    parts: list[Part] = []
    for frame in frames:
        parts += [f"{frame.time:.1f}s", frame]
    return tuple(parts)


def times_text(frames: Sequence[Frame]) -> str:
    """The times of frames as a list: ``12.5s, 13.0s``."""
    return ", ".join(f"{frame.time:.1f}s" for frame in frames)
