"""FrameThinker's grammar: a thought, then one action in words; frames after their number in the video."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentic_video.systems.shown import FramesAs, with_labels
from agentic_video.tools.base import ToolError
from agentic_video.tools.choose_frames import parse_choice
from agentic_video.tools.frame_number import parse_lookup, replied_number, seconds_of
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Part
from agentic_video.types.trajectory import Trajectory, Turn, recorded_frames

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
ACTION_OPEN, ACTION_CLOSE = "<action>", "</action>"
ANSWER = "output answer:"
MAX_CALL_CHARS = 200
"""A request is refused beyond this many characters: no legal one comes near it."""


def split_turn(text: str) -> tuple[str, str] | None:
    """The last finished thought and the last action behind it; None without an action after a thought."""
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


@dataclass(frozen=True)
class Look:
    """A ``choose_frames``: its pair as asked for, the numbers of the frames that were shown, the thought before it."""

    pair: tuple[int, int]
    shown: tuple[int, ...]
    thought: str


@dataclass(frozen=True)
class Lookup:
    """A ``frame_number``: the time in seconds, and the frame number that was returned."""

    seconds: int
    number: int | None


Step = Look | Lookup | Answer


@dataclass(frozen=True)
class Steps:
    """The actions of an episode, in order.

    Attributes:
        steps: Its looks, lookups and answer; what is none of them is left out.
        overview_end: Number of the overview's last frame: the video's last one when the overview is uniform.
    """

    steps: tuple[Step, ...]
    overview_end: int | None

    @property
    def looks(self) -> tuple[Look, ...]:
        """Its looks."""
        return tuple(step for step in self.steps if isinstance(step, Look))

    @property
    def returned_numbers(self) -> tuple[int, ...]:
        """The frame numbers that its lookups returned."""
        return tuple(step.number for step in self.steps if isinstance(step, Lookup) and step.number is not None)


def read_steps(trajectory: Trajectory) -> Steps:
    """Read the actions of an episode whose tools are ``choose_frames`` and ``frame_number``."""
    overview = [ref.index for message in trajectory.opening for ref in recorded_frames(message.parts)]
    steps = tuple(step for turn in trajectory.turns if (step := _step(turn)) is not None)
    return Steps(steps, max(overview, default=None))


def _step(turn: Turn) -> Step | None:
    if isinstance(turn.action, Answer):
        return turn.action
    if not isinstance(turn.action, Calls) or not turn.action.calls:
        return None
    call = turn.action.calls[0]
    if call.name == "choose_frames":
        shown = tuple(ref.index for ref in recorded_frames(turn.observation))
        thought, _ = split_turn(turn.text) or ("", "")
        return Look((call.arguments["start"], call.arguments["end"]), shown, thought)
    if call.name == "frame_number":
        try:
            return Lookup(seconds_of(call.arguments["time"]), replied_number(turn.observation))
        except ToolError:
            return None
    return None


LABELS: Mapping[FramesAs, str] = {
    "images": "The number of every frame is written in front of it.",
    "video": "They come as one video; the numbers of its first and last frame are written in front of it.",
}
"""The instructions' sentence about labels."""


def labelled(frames: Sequence[Frame], frames_as: FramesAs = "images") -> tuple[Part, ...]:
    """Each image after its number in the video, one a line: ``frame 420: ``; a clip after both ends (paper, released
    code)."""
    return with_labels(
        frames,
        frames_as,
        lambda number, frame: ("\n" if number else "") + f"frame {frame.index}: ",
        lambda first, last: f"frame {first.index} to frame {last.index}: ",
    )
