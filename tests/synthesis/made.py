"""Records made by hand, for the tests of what reads records."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentic_video.types.action import Answer, Calls, ToolCall
from agentic_video.types.record import Record, write_record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory, Turn

CHOICE = VideoQA(
    id="q",
    video="/videos/a.mp4",
    question="What colour is the ball?",
    answer="B",
    options=("red", "green"),
    data_source="test",
)
OPEN = replace(CHOICE, question="What does she pick up?", answer="a red cup", answer_type="open_ended", options=())


def look(start: int, end: int) -> ToolCall:
    return ToolCall("choose_frames", {"start": start, "end": end})


def lookup(time: str) -> ToolCall:
    return ToolCall("frame_number", {"time": time})


def record(
    calls: Sequence[ToolCall] = (),
    answer: str | None = "B",
    qa: VideoQA = CHOICE,
    system: str = "framethinker",
    rewards: dict[str, float] | None = None,
    frames: bool = True,
    **provenance: Any,
) -> Record:
    """One call a turn, each carried out, and then the answer, or none at all."""
    shown = ("frames: ", FrameRef(3, 0.3, 56, 28)) if frames else ("nothing",)
    turns = [
        Turn(f"<think>look {number}</think>", Calls((call,)), 5, observation=shown, legal_calls=1)
        for number, call in enumerate(calls)
    ]
    if answer is not None:
        turns.append(Turn(f"<think>so</think><answer>{answer}</answer>", Answer(answer), 5))
    end = EndReason.TURN_LIMIT if answer is None else EndReason.ANSWER
    return Record(qa, Trajectory(qa.id, system, (), tuple(turns), end), rewards or {}, provenance)


def asks(end: int = 50) -> str:
    """VideoBrain's call for frames from the first to this one."""
    arguments = f'{{"start_frame": 0, "end_frame": {end}}}'
    return f'<thinking>more</thinking><tool_call>{{"name": "uniform_sample", "arguments": {arguments}}}</tool_call>'


def asking(end: int = 50) -> Turn:
    """The turn that says it."""
    return Turn(asks(end), Calls((ToolCall("uniform_sample", {"start_frame": 0, "end_frame": end}),)), 9, legal_calls=1)


def brain(
    letter: str, acc: float, calls: int = 1, think: str = "<thinking>so</thinking>", qa: VideoQA = CHOICE
) -> Record:
    """An episode of VideoBrain that asks for the same frames in each call."""
    turns = [asking()] * calls
    turns.append(Turn(f"{think}<answer>{letter}</answer>", Answer(letter), 9))
    made = record(answer=letter, qa=qa, system="videobrain", rewards={"acc": acc})
    return replace(made, trajectory=replace(made.trajectory, turns=tuple(turns)))


def write(file: Path, records: Sequence[Record]) -> Path:
    """Write records into a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lines:
        for made in records:
            write_record(lines, made)
    return file
