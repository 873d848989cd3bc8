"""VideoZoomer's grammar: think, then one zoom or the answer; frames after their number and time."""

from collections.abc import Mapping, Sequence

from agentic_video.systems.blocks import answer_in_tags
from agentic_video.systems.shown import FramesAs, with_labels
from agentic_video.tools.arguments import read_json_object
from agentic_video.tools.base import ToolError
from agentic_video.types.action import Action, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Part
from agentic_video.types.trajectory import Trajectory

CALL_OPEN, CALL_CLOSE = "<video_zoom>", "</video_zoom>"


def parse_turn(text: str) -> Action:
    """Read a turn that ends in a call as it, else its last answer tag; a closing tag alone is no call (released
    code)."""
    if CALL_OPEN in text and text.rstrip().endswith(CALL_CLOSE):
        if text.count(CALL_OPEN) != 1 or text.count(CALL_CLOSE) != 1:
            return Illegal("one turn may hold only one call")
        body = text[text.index(CALL_OPEN) + len(CALL_OPEN) : text.index(CALL_CLOSE)]
        try:
            return Calls((ToolCall("video_zoom", read_json_object(body)),))
        except ToolError as error:
            return Illegal(str(error))
    return answer_in_tags(text)


def all_said(trajectory: Trajectory) -> str:
    """All turns as one text, from the last opening tag of an answer on, up to a closing one (released code)."""
    said = " ".join(turn.text for turn in trajectory.turns).rpartition("<answer>")[2]
    return said.partition("</answer>")[0].strip()


LABELS: Mapping[FramesAs, str] = {
    "images": "The index and the time in seconds of every frame are written in front of it.",
    "video": "A stretch comes as one video; the index and the time in seconds of its first and last frame are written "
    "in front of it.",
}
"""The instructions' sentence about labels."""


def labelled(frames: Sequence[Frame], frames_as: FramesAs = "images") -> tuple[Part, ...]:
    """Each image after its number within the clip and its time; a clip after both ends (released code)."""

    def label(number: int, frame: Frame) -> str:
        return f"<frame{number}_time{frame.time:.2f}s>"

    return with_labels(frames, frames_as, label, lambda first, last: label(0, first) + label(len(frames) - 1, last))
