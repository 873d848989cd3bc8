"""TimeSearch-R's grammar: think, then one call as JSON or the answer; frames after their time in seconds."""

from collections.abc import Sequence

from agentic_video.systems.blocks import Block, read_blocks
from agentic_video.systems.shown import FramesAs, with_labels
from agentic_video.tools.arguments import read_call
from agentic_video.tools.base import ToolError
from agentic_video.types.action import Action, Answer, Calls, Illegal
from agentic_video.types.frame import Frame
from agentic_video.types.message import Part

CALL_CLOSE, ANSWER_CLOSE = "</tool_call>", "</answer>"
_CALL_DEPTH = 3
"""The call, its arguments; a list or an object in them is refused as such."""


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
        # The arguments may be JSON in a text (released code).
        return Calls((read_call(found.body, _CALL_DEPTH, nested_text=True),))
    except ToolError as error:
        return Illegal(str(error))


def labelled(frames: Sequence[Frame], frames_as: FramesAs = "images") -> tuple[Part, ...]:
    """Each image after its real time in seconds: ``12.5s`` (released code); a clip, whose times the model is given
    otherwise, without any."""
    return with_labels(frames, frames_as, lambda _, frame: f"{frame.time:.1f}s")


def times_text(frames: Sequence[Frame]) -> str:
    """The times of frames as a list: ``12.5s, 13.0s``."""
    return ", ".join(f"{frame.time:.1f}s" for frame in frames)
