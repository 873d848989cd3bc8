"""Video-o3's grammar: a thought, then one look at a segment or the answer; what is shown comes as a numbered
observation."""

import re
from collections.abc import Mapping, Sequence

from agentic_video.systems.blocks import answer_in_tags, last_block
from agentic_video.systems.shown import FramesAs, with_labels
from agentic_video.tools import ground_segment
from agentic_video.tools.base import ToolError
from agentic_video.tools.ground_segment import read_grounding
from agentic_video.types.action import Action, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Part

CALL_OPEN, CALL_CLOSE = "<grounding>", "</grounding>"
_TAG = re.compile(r"</?(?:think|grounding|answer)>")


def call_body(text: str) -> str | None:
    """Text of the last closed call of a turn; None without one."""
    return last_block(text, "grounding")


def parse_turn(text: str) -> Action:
    """Read a turn: its last closed call, which ends a turn (released port), else its last closed answer."""
    if (body := call_body(text)) is not None:
        try:
            return Calls((ToolCall(ground_segment.NAME, read_grounding(body)),))
        except ToolError as error:
            return Illegal(str(error))
    return answer_in_tags(text)


def thinks_then(text: str, tag: str) -> bool:
    """Whether a turn is one thought and one block of a tag: nothing else but a line break before, between and behind,
    and no tag inside a block."""
    opened, closed = f"<{tag}>", f"</{tag}>"
    if _TAG.findall(text) != ["<think>", "</think>", opened, closed]:
        return False
    before, _, rest = text.partition("<think>")
    _, _, rest = rest.partition("</think>")
    between, _, rest = rest.partition(opened)
    _, _, behind = rest.partition(closed)
    return {before, between, behind} <= {"", "\n"}


LABELS: Mapping[FramesAs, str] = {
    "images": "Each frame comes after its time in seconds.",
    "video": "The frames of an observation come as one video.",
}
"""The instructions' sentence about frames."""


def shown(frames: Sequence[Frame], frames_as: FramesAs) -> tuple[Part, ...]:
    """Frames as one clip, or each image after its real time in seconds: ``<12.50s>``."""
    return with_labels(frames, frames_as, lambda _, frame: f"<{frame.time:.2f}s>")
