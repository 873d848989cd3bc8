"""Turns of VideoBrain as texts, and a small system that plays them."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentic_video.graders.base import Graders
from agentic_video.graders.judge import Judge
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import FrameRef, Trajectory
from tests.conftest import MemorySource

THOUGHT = "<thinking>look</thinking>"
REPLY = "<thinking>seen</thinking><answer>B</answer>"
BASE = VideoBrain(max_width=64, max_height=64, answer_match="robust")


def call(name: str, **arguments: Any) -> str:
    return f"{THOUGHT}<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


LOOK = call("uniform_sample", start_frame=410, end_frame=430)
FIND = call("clip_sample", start_frame=0, end_frame=600, prompt="a red car")


class Nearest:
    """A retriever that finds the frames nearest to a number, and keeps what it was asked."""

    def __init__(self, wanted: int = 0):
        self.wanted = wanted
        self.asked: list[tuple[str, list[int]]] = []

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        self.asked.append((prompt, list(indices)))
        return [-abs(index - self.wanted) for index in indices]


def run(
    system: VideoBrain, qa: VideoQA, *texts: str, source: MemorySource | None = None, retriever: Nearest | None = None
) -> Trajectory:
    policy = ScriptedPolicy(lambda view: texts[len(view.turns)])
    return asyncio.run(play(system, policy, qa, source or MemorySource(), retriever))


def seen(trajectory: Trajectory, turn: int) -> list[int]:
    return [part.index for part in trajectory.turns[turn].observation if isinstance(part, FrameRef)]


def told(trajectory: Trajectory, turn: int) -> str:
    return "".join(part for part in trajectory.turns[turn].observation if isinstance(part, str))


def classed(qa: VideoQA, name: str = "active") -> VideoQA:
    return replace(qa, extra={"class": name})


def score(system: VideoBrain, trajectory: Trajectory, qa: VideoQA, judge: Judge | None = None) -> Score:
    return asyncio.run(system.score(trajectory, qa, Graders(judge=judge)))
