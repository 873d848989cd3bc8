"""FrameMind's grammar: thoughts, calls as JSON and a turn summary, or thoughts and the answer (appendix B.1)."""

from collections.abc import Mapping, Sequence

from agentic_video.systems.blocks import read_blocks
from agentic_video.systems.shown import FramesAs, with_labels
from agentic_video.tools import frame_at, video_clip
from agentic_video.tools.arguments import number, read_json_object
from agentic_video.tools.base import ToolError
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall, refused
from agentic_video.types.frame import Frame
from agentic_video.types.message import Part

TAGS = ("think", "tool_call", "turn_sum", "answer")
TOOLS = (frame_at.NAME, video_clip.NAME)


def parse_turn(text: str, max_calls: int) -> Action:
    """Read a turn: its last closed answer, else its calls before a closed turn summary (appendix B.1).

    Text inside a thought, or any other block, is text.
    """
    read = read_blocks(text, TAGS)
    if answers := read.bodies("answer"):
        return Answer(answers[-1].strip())
    if not read.bodies("turn_sum"):
        return Illegal("neither a turn summary nor an answer")
    bodies = read.bodies("tool_call")
    calls = [read_call(body) for body in bodies[:max_calls]]
    if len(bodies) > max_calls:
        calls.append(refused(f"only {max_calls} calls are allowed in a turn, the others were left out"))
    return Calls(tuple(calls))


def read_call(body: str) -> ToolCall:
    """The call between a pair of tags: a known tool with numbers as arguments, or a refused one. Never raises."""
    try:
        call = read_json_object(body)
        name, arguments = call.get("name"), call.get("arguments")
        if not isinstance(name, str) or name not in TOOLS:
            return refused(f"there is no such tool, only {' and '.join(TOOLS)}")
        if not isinstance(arguments, dict):
            return refused("arguments must be a JSON object")
        return ToolCall(name, {key: number(value, "every argument") for key, value in arguments.items()})
    except ToolError as error:
        return refused(str(error))


LABELS: Mapping[FramesAs, str] = {
    "images": "Each frame comes after its time in seconds.",
    "video": "They come as one video, after the times in seconds of its first and its last frame; a single frame comes "
    "after its time.",
}
"""The instructions' sentence about labels."""


def labelled(frames: Sequence[Frame], frames_as: FramesAs = "images") -> tuple[Part, ...]:
    """Each image after its real time in seconds: ``<12.50s>``; a clip after both ends: ``<12.50s to 16.00s>``."""
    return with_labels(
        frames,
        frames_as,
        lambda _, frame: f"<{frame.time:.2f}s>",
        lambda first, last: f"<{first.time:.2f}s to {last.time:.2f}s>",
    )


def evidence_header(tool: str) -> str:
    """The line before a tool's frames. The system writes it for a call that was carried out, and for nothing else, so
    that it says in a trajectory which of a turn's calls were."""
    return f"{tool}:\n"
