"""LongVT's grammar: think, then calls as JSON or the answer; frames without labels, the reply's text after them."""

from collections.abc import Sequence

from agentic_video.systems.blocks import answer_in_tags
from agentic_video.tools.arguments import read_call
from agentic_video.tools.base import ToolError
from agentic_video.tools.crop_video import NAME
from agentic_video.types.action import Action, Calls, Illegal, ToolCall
from agentic_video.types.message import Part

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
REPLY_OPEN, REPLY_CLOSE = "<tool_response>", "</tool_response>"


def parse_turn(text: str) -> Action:
    """Read a turn: its calls, whatever else it holds, else the text of its last answer tag.

    One unreadable call, or one for another tool, spoils the turn (released code: the episode ends).
    """
    calls: list[ToolCall] = []
    for block in text.split(CALL_OPEN)[1:]:
        body, closed, _ = block.partition(CALL_CLOSE)
        if not closed:
            return Illegal("a call has no end")
        try:
            call = read_call(body)
        except ToolError as error:
            return Illegal(str(error))
        if call.name != NAME:
            return Illegal(f"there is no such tool, only {NAME}")
        calls.append(call)
    if calls:
        return Calls(tuple(calls))
    return answer_in_tags(text)


def reply(shown: Sequence[Part], text: str) -> tuple[Part, ...]:
    """Reply to a call: its frames first, then one text (released code)."""
    return (f"{REPLY_OPEN}\n", *shown, f"{text}\n{REPLY_CLOSE}")
