"""Records made by hand, for the tests of what reads records."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentic_video.types.action import Answer, Calls, ToolCall
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory, Turn

CHOICE = VideoQA(
    id="q", video="/videos/a.mp4", question="What colour is the ball?", answer="B", options=("red", "green"),
    data_source="test",
)  # fmt: skip
OPEN = replace(CHOICE, question="What does she pick up?", answer="a red cup", answer_type="open_ended", options=())


def look(start: int, end: int) -> ToolCall:
    return ToolCall("choose_frames", {"start": start, "end": end})


def lookup(time: str) -> ToolCall:
    return ToolCall("frame_number", {"time": time})


def record(
    calls: Sequence[ToolCall] = (), answer: str | None = "B", qa: VideoQA = CHOICE, system: str = "framethinker",
    rewards: dict[str, float] | None = None, frames: bool = True, **provenance: Any,
) -> Record:  # fmt: skip
    """One call a turn, each carried out, and then the answer, or none at all."""
    shown = ("frames: ", FrameRef(3, 0.3, 56, 28)) if frames else ("nothing",)
    turns = [Turn(f"<think>look {number}</think>", Calls((call,)), 5, observation=shown, legal_calls=1)
             for number, call in enumerate(calls)]  # fmt: skip
    if answer is not None:
        turns.append(Turn(f"<think>so</think><answer>{answer}</answer>", Answer(answer), 5))
    end = EndReason.TURN_LIMIT if answer is None else EndReason.ANSWER
    return Record(qa, Trajectory(qa.id, system, (), tuple(turns), end), rewards or {}, provenance)
