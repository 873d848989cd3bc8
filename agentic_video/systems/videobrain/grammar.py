"""VideoBrain's grammar: think, then one call as JSON or the answer; frames after their number in the video."""

from collections.abc import Mapping, Sequence

from agentic_video.systems.blocks import last_block
from agentic_video.systems.shown import FramesAs, one_clip
from agentic_video.tools.arguments import read_json_object
from agentic_video.tools.base import ToolError
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Part

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"


def parse_turn(text: str) -> Action:
    """Read a turn: one that ends in a call is a call, else the text of its last answer tag is the answer."""
    if text.rstrip().endswith(CALL_CLOSE):
        if text.count(CALL_OPEN) != 1 or text.count(CALL_CLOSE) != 1:
            return Illegal("one turn may hold only one call")
        try:
            return Calls((read_call(text[text.index(CALL_OPEN) + len(CALL_OPEN) : text.index(CALL_CLOSE)]),))
        except ToolError as error:
            return Illegal(str(error))
    answer = last_block(text, "answer")
    return Illegal("neither a call nor an answer") if answer is None else Answer(answer.strip())


def read_call(body: str) -> ToolCall:
    """Read what stands between the tags of a call.

    Raises:
        ToolError: It isn't ``{"name": .., "arguments": {..}}`` with plain values as arguments.
    """
    call = read_json_object(body)
    name, arguments = call.get("name"), call.get("arguments")
    if not isinstance(name, str):
        raise ToolError("the call has no name")
    if not isinstance(arguments, dict):
        raise ToolError("the call has no arguments")
    # What follows goes into the episode's record, which can't hold deep nesting or half a character ("\ud800").
    if any(isinstance(value, dict | list) for value in arguments.values()):
        raise ToolError("an argument must be a number or a text")
    try:
        for text in (name, *arguments, *(value for value in arguments.values() if isinstance(value, str))):
            text.encode()
    except UnicodeEncodeError:
        raise ToolError("the call holds what is no text") from None
    return ToolCall(name, arguments)


LABELS: Mapping[FramesAs, str] = {
    "images": "each after its frame number",
    "video": "as one video after the frame numbers of its first and its last; frames that aren't evenly spread come "
    "one by one, each after its frame number",
}
"""What the instructions say of labels."""


def labelled(frames: Sequence[Frame], frames_as: FramesAs = "images") -> tuple[Part, ...]:
    """Each image on a line of its own, after its number in the video: ``frame 1250: `` (released code).

    A clip comes after both ends: ``frame 1250 to frame 2500: ``.
    """
    if clip := one_clip(frames_as, frames):
        return (f"\nframe {frames[0].index} to frame {frames[-1].index}: ", clip)
    parts: list[Part] = []
    for frame in frames:
        parts += [f"\nframe {frame.index}: ", frame]
    return tuple(parts)
