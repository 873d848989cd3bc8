"""ParaVT's grammar: think, then one crop or several, or the answer; frames after their time."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentic_video.systems.blocks import read_blocks
from agentic_video.systems.shown import FramesAs, with_labels
from agentic_video.tools import crop_video
from agentic_video.tools.arguments import MAX_CALL_CHARS, read_call
from agentic_video.tools.base import ToolError
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall, refused
from agentic_video.types.frame import Frame
from agentic_video.types.message import Part

TAGS = ("think", "tool_call", "tool_code", "answer")
CALL_TAGS = ("tool_call", "tool_code")
REPLY_OPEN, REPLY_CLOSE = "<tool_response>\n", "\n</tool_response>"
CUT_MARK = " [truncated]"
"""Follows a summary that was cut at its token limit (released code)."""

FORGED = ("<tool_response>", "<|")
"""Text that only the environment writes: a reply, and the model's special tokens."""

_OTHER_NAMES = {"start": "start_time", "end": "end_time"}
_CODE = re.compile(r"(?:print\s*\(\s*)?(\w{1,40})\s*\((.*)\)")
_ARGUMENT = re.compile(
    r"""\s*(?:(\w{1,40})\s*=\s*)?(?:"([^"]*)"|'([^']*)'|(-?[0-9]{1,20}(?:\.[0-9]{0,20})?))\s*(?:,|$)"""
)
_ANY_TAG = re.compile(rf"</?(?:{'|'.join(TAGS)})>")


def parse_turn(text: str, max_calls: int, fallback: bool = True) -> Action:
    """Read a turn: its closed calls, whatever else it holds; else its first closed answer; else, with ``fallback``, its
    text.

    Calls beyond ``max_calls`` become one that is refused. Text inside a thought, or any other block, is text.
    """
    read = read_blocks(text, TAGS)
    calls: list[ToolCall] = []
    for block in read.blocks:
        if block.tag in CALL_TAGS and len(calls) <= max_calls:
            calls += _read_block(block.tag, block.body)
    if len(calls) > max_calls:
        calls[max_calls:] = [refused(f"only {max_calls} calls are allowed in a turn, the others were left out")]
    if calls:
        return Calls(tuple(calls))
    if answers := read.bodies("answer"):
        return Answer(answers[0].strip())
    if begins_call(text):
        return Illegal("the call is not closed")
    if fallback and (said := untagged_answer(text)):
        return Answer(said)
    return Illegal("neither a call nor an answer")


def begins_call(text: str) -> bool:
    """Whether a call is opened outside the thoughts, closed or not."""
    behind = text.rpartition("</think>")[2]
    return any(f"<{tag}>" in behind for tag in CALL_TAGS)


def untagged_answer(text: str) -> str:
    """The answer of a turn without one in tags: the text behind its thought, else its last line (released code).

    Tags are left out; empty and forged texts are no answer.
    """
    if any(mark in text for mark in FORGED):
        return ""
    _, closed, behind = text.rpartition("</think>")
    if closed and (said := _ANY_TAG.sub(" ", behind).strip()):
        return said
    lines = [line.strip() for line in _ANY_TAG.sub("\n", text).splitlines()]
    return next((line for line in reversed(lines) if line), "")


def _read_block(tag: str, body: str) -> list[ToolCall]:
    """The calls between the tags of one block: JSON holds one, code one a line. Never raises."""
    try:
        if tag == "tool_call":
            return [_known(read_call(body))]
        if len(body) > MAX_CALL_CHARS:
            raise ToolError(f"the call is longer than {MAX_CALL_CHARS} characters")
        lines = [line.strip() for line in body.splitlines() if line.strip()]
        return [_known(read_code(line)) for line in lines] or [refused("the call is empty")]
    except ToolError as error:
        return [refused(str(error))]


def read_code(line: str) -> ToolCall:
    """Read a call written as code, perhaps inside ``print(..)``; unnamed arguments are in the schema's order.

    Nothing is ever executed.
    """
    call = _CODE.match(line)
    if call is None:
        raise ToolError("the call is not a function with its arguments")
    name, inside = call[1], call[2]
    if line.startswith("print"):
        inside = inside.rstrip().removesuffix(")")
    arguments: dict[str, Any] = {}
    position = 0
    while position < len(inside):
        found = _ARGUMENT.match(inside, position)
        if found is None or len(arguments) >= len(crop_video.ARGUMENTS):
            raise ToolError("the arguments of the call can't be read")
        key = found[1] or crop_video.ARGUMENTS[len(arguments)]
        arguments[key] = float(found[4]) if found[4] else found[2] if found[2] is not None else found[3]
        position = found.end()
    return ToolCall(name, arguments)


def _known(call: ToolCall) -> ToolCall:
    """A call of the tool, ``start`` and ``end`` under their other names."""
    if call.name != crop_video.NAME:
        raise ToolError(f"there is no such tool, only {crop_video.NAME}")
    named = {key: value for key, value in call.arguments.items() if key in crop_video.ARGUMENTS}
    for other, key in _OTHER_NAMES.items():
        if key not in named and other in call.arguments:
            named[key] = call.arguments[other]
    return ToolCall(call.name, named)


LABELS: Mapping[FramesAs, str] = {
    "images": "Each frame comes after its time.",
    "video": "They come as one video, after the times of its first and its last frame.",
}
"""The instructions' sentence about labels."""


def labelled(frames: Sequence[Frame], frames_as: FramesAs = "images", labels: bool = True) -> tuple[Part, ...]:
    """Each image after its time, ``<12.5 seconds>``; a clip after both ends (released code). ``labels`` switches them
    off."""
    shown = with_labels(
        frames,
        frames_as,
        lambda _, frame: f"<{frame.time:.1f} seconds>",
        lambda first, last: f"<{first.time:.1f} to {last.time:.1f} seconds>",
    )
    return shown if labels else tuple(part for part in shown if not isinstance(part, str))


def harmless(text: str) -> str:
    """A sub-agent's text that can neither close the reply that it stands in nor open a tag.

    Special tokens of the model become plain text in :class:`agentic_video.rollout.tokens.ChatFormat`.
    """
    return " ".join(text.replace("<", "(").replace(">", ")").split())


def reply(text: str) -> str:
    """A call's reply."""
    return f"{REPLY_OPEN}{text}{REPLY_CLOSE}"
