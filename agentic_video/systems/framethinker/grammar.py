"""FrameThinker's grammar: a thought, then one action in words; frames after their number in the video."""

from collections.abc import Sequence

from agentic_video.tools.choose_frames import parse_choice
from agentic_video.tools.frame_number import parse_lookup
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Part

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"


ACTION_OPEN, ACTION_CLOSE = "<action>", "</action>"
ANSWER = "output answer:"
MAX_CALL_CHARS = 200
"""A request is refused beyond this many characters: no legal one comes near it."""


def split_turn(text: str) -> tuple[str, str] | None:
    """The last action of a turn, and the last finished thought before it.

    Returns:
        (thought, action), or None when there is no action after a thought.
    """
    action_end = text.rfind(ACTION_CLOSE)
    action_start = text.rfind(ACTION_OPEN, 0, max(action_end, 0))
    think_end = text.rfind(THINK_CLOSE, 0, max(action_start, 0))
    think_start = text.rfind(THINK_OPEN, 0, max(think_end, 0))
    if think_start < 0:
        return None
    return text[think_start + len(THINK_OPEN) : think_end], text[action_start + len(ACTION_OPEN) : action_end]


def parse_turn(text: str) -> Action:
    """Read a turn: its last action counts; it must follow a thought."""
    blocks = split_turn(text)
    if blocks is None:
        return Illegal("no action after a thought")
    action = blocks[1].strip()
    if action.startswith(ANSWER):
        answer = action[len(ANSWER) :].strip()
        return Answer(answer) if answer else Illegal("the answer is empty")
    if len(action) > MAX_CALL_CHARS:
        return Illegal("unknown action")
    if (choice := parse_choice(action)) is not None:
        return Calls((ToolCall("choose_frames", choice),))
    if (lookup := parse_lookup(action)) is not None:
        return Calls((ToolCall("frame_number", lookup),))
    return Illegal("unknown action")


def labelled(frames: Sequence[Frame]) -> tuple[Part, ...]:
    """Each image after its number in the video, one a line: ``frame 420: `` (paper, released code)."""
    parts: list[Part] = []
    for frame in frames:
        parts += [("\n" if parts else "") + f"frame {frame.index}: ", frame]
    return tuple(parts)
