"""EVA's grammar: think, then calls as JSON or the answer; frames after their number and time."""

from collections.abc import Mapping, Sequence

from agentic_video.systems.shown import FramesAs, with_labels
from agentic_video.tools.base import ToolError
from agentic_video.tools.frame_select import read_calls
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Part
from agentic_video.utils.units import clock

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"
REPLY_OPEN, REPLY_CLOSE = "<tool_response>", "</tool_response>"


def parse_turn(text: str) -> Action:
    """Read a turn: after thinking, the first answer if there is one (released code), else the calls."""
    said = text.rpartition(THINK_CLOSE)[2].partition(THINK_OPEN)[0]
    start = said.find(ANSWER_OPEN)
    end = said.find(ANSWER_CLOSE, start) if start >= 0 else -1
    if end >= 0 and (answer := said[start + len(ANSWER_OPEN) : end].strip()):
        return Answer(answer)
    calls: list[ToolCall] = []
    for block in said.split(CALL_OPEN)[1:]:
        body, closed, _ = block.partition(CALL_CLOSE)
        if not closed:
            return Illegal("a call has no end")
        try:
            calls += [ToolCall(name, arguments) for name, arguments in read_calls(body)]
        except ToolError as error:
            return Illegal(str(error))
    return Calls(tuple(calls)) if calls else Illegal("neither a call nor an answer")


def shown_seconds(duration: float) -> int:
    """Length of a video as the agent is told it: half a second less, in whole seconds, at least 1 (released code)."""
    return int(max(duration - 0.5, 1.0))


LABELS: Mapping[FramesAs, str] = {
    "images": "each with its time as minutes:seconds",
    "video": "as one video after the times of its first and its last frame as minutes:seconds",
}
"""The instructions' sentence about labels."""


def labelled(
    frames: Sequence[Frame], times: Sequence[float], frames_as: FramesAs = "images", start: int = 0
) -> tuple[Part, ...]:
    """Each image after its number and its asked time in minutes and whole seconds (released code), counted from
    ``start``.

    A clip comes after both ends: ``Frame 0 at [00:30] to frame 7 at [01:30]: ``.
    """

    def label(number: int, _: Frame) -> str:
        return f"{_break(start + number)}Frame {start + number} at [{clock(times[number])}]: "

    def clip_label(*_: Frame) -> str:
        last = len(frames) - 1
        span = f"Frame {start} at [{clock(times[0])}] to frame {start + last} at [{clock(times[last])}]: "
        return _break(start) + span

    return with_labels(frames, frames_as, label, clip_label)


def _break(number: int) -> str:
    return "\n" if number else ""
