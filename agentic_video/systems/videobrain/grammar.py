"""VideoBrain's grammar: think, then one call as JSON or the answer; frames after their number in the video."""

from collections.abc import Mapping, Sequence

from agentic_video.systems.blocks import answer_in_tags
from agentic_video.systems.shown import FramesAs, with_labels
from agentic_video.tools.arguments import read_call
from agentic_video.tools.base import ToolError
from agentic_video.types.action import Action, Calls, Illegal
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
    return answer_in_tags(text)


TOOLS = ("uniform_sample", "clip_sample")
"""The tools in the order in which the instructions name them."""
HOW_MANY = {1: "One tool fetches more.", 2: "Two tools fetch more."}
OTHERWISE = {
    ("uniform_sample",): "choose another range",
    ("clip_sample",): "describe something else",
    TOOLS: "choose another range, or describe something else",
}
"""Text that replaces a repeated call in the instructions, by the available tools."""


LABELS: Mapping[FramesAs, str] = {
    "images": "each after its frame number",
    "video": "as one video after the frame numbers of its first and its last; frames that aren't evenly spread come "
    "one by one, each after its frame number",
}
"""The instructions' sentence about labels."""


def labelled(frames: Sequence[Frame], frames_as: FramesAs = "images") -> tuple[Part, ...]:
    """Each image on a line of its own, after its number in the video; a clip after both ends (released code)."""
    return with_labels(
        frames,
        frames_as,
        lambda _, frame: f"\nframe {frame.index}: ",
        lambda first, last: f"\nframe {first.index} to frame {last.index}: ",
    )
