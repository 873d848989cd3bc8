"""Recorded turns of EVA, and a verifier that says what it is told."""

import asyncio
from collections.abc import Sequence

from agentic_video.graders.base import Graders
from agentic_video.systems.eva.system import Eva
from agentic_video.types.action import Answer, Calls, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory, Turn
from tests.conftest import MemorySource

CALL = '<tool_call>{"tool": "frame_select", "arguments": {"start_time": 1, "end_time": 3, "nframes": 2}}</tool_call>'
CALLS = Calls((ToolCall("frame_select", {"start_time": 1, "end_time": 3, "nframes": 2}),))
EARLY = (FrameRef(10, 1.0, 28, 28), FrameRef(30, 3.0, 28, 28))
LATE = (FrameRef(410, 41.0, 56, 28), FrameRef(430, 43.0, 28, 28), FrameRef(420, 42.0, 28, 28))


def look(refs: Sequence[FrameRef] = EARLY, text: str = "<think>plan</think>" + CALL) -> Turn:
    return Turn(text, CALLS, 9, observation=("<tool_response>", *refs, "</tool_response>"), legal_calls=1)


def refused(text: str = "<think>plan</think>" + CALL) -> Turn:
    return Turn(text, CALLS, 9, observation=("<tool_response>Error</tool_response>",), illegal_calls=1)


def reply(answer: str = "B", text: str = "") -> Turn:
    return Turn(text or f"<think>seen</think><answer>{answer}</answer>", Answer(answer), 9)


def episode(*turns: Turn, end: EndReason = EndReason.ANSWER) -> Trajectory:
    return Trajectory("q", "eva", (), turns, end)


class FakeVerifier:
    def __init__(self, says: str | Exception):
        self.says = says
        self.asked: list[tuple[str, list[Frame]]] = []

    async def ask(self, prompt: str, frames: Sequence[Frame]) -> str:
        self.asked.append((prompt, list(frames)))
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


def score(trajectory: Trajectory, qa: VideoQA, verifier: FakeVerifier | None, system: Eva | None = None) -> float:
    graders = Graders(verifier=verifier, source=MemorySource())  # type: ignore[arg-type]
    return asyncio.run((system or Eva()).score(trajectory, qa, graders)).reward
