"""Scripted episodes of systems over grey frames, readers of what they recorded, and graders that say what they are
told."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentic_video.graders.base import Graders
from agentic_video.graders.judge import Judge, JudgeConfig
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import System
from agentic_video.types.message import AsideRequest
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory, Turn
from tests.conftest import MemorySource


def run(
    system: System,
    qa: VideoQA,
    source: MemorySource,
    *texts: str,
    retriever: Any = None,
    asides: Callable[[AsideRequest], str] | None = None,
    **options: Any,
) -> Trajectory:
    """Play an episode of these turns; the last one is repeated."""
    policy = ScriptedPolicy(lambda view: texts[min(len(view.turns), len(texts) - 1)], asides)
    return asyncio.run(play(system, policy, qa, source, retriever, **options))


def ended(*turns: Turn, end: EndReason = EndReason.ANSWER, **facts: Any) -> Trajectory:
    """An episode of recorded turns."""
    return Trajectory("q", "any", (), turns, end, **facts)


def refs(trajectory: Trajectory, turn: int = 0) -> list[FrameRef]:
    return [part for part in trajectory.turns[turn].observation if isinstance(part, FrameRef)]


def seen(trajectory: Trajectory, turn: int = 0) -> list[int]:
    """Numbers of the images that a turn was answered with."""
    return [ref.index for ref in refs(trajectory, turn)]


def times(trajectory: Trajectory, turn: int = 0) -> list[float]:
    return [ref.time for ref in refs(trajectory, turn)]


def told(trajectory: Trajectory, turn: int = 0) -> str:
    """The text that a turn was answered with."""
    return "".join(part for part in trajectory.turns[turn].observation if isinstance(part, str))


def score(system: System, trajectory: Trajectory, qa: VideoQA, judge: Judge | None = None) -> Score:
    return asyncio.run(system.score(trajectory, qa, Graders(judge=judge)))


class FixedJudge(Judge):
    """Gives one grade, or one for each scale, and keeps what it was asked."""

    def __init__(self, grade: float | Mapping[str, float] = 1.0):
        super().__init__(JudgeConfig())
        self.fixed = grade
        self.asked: list[tuple[str, str, str, str]] = []

    async def grade(self, question: str, reference: str, candidate: str, scale: str = "binary") -> float:
        self.asked.append((question, reference, candidate, scale))
        return self.fixed if isinstance(self.fixed, float) else self.fixed[scale]


class Nearest:
    """A retriever that finds the frames nearest to a number, and keeps what it was asked."""

    def __init__(self, wanted: int = 0):
        self.wanted = wanted
        self.asked: list[tuple[str, list[int]]] = []

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        self.asked.append((prompt, list(indices)))
        return [-abs(index - self.wanted) for index in indices]
