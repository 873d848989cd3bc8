"""Turns of TimeSearch-R's agents, and what answers beside them: a retriever and the policy's asides."""

import asyncio
import json
from typing import Any

from agentic_video.graders.base import Graders
from agentic_video.graders.judge import Judge
from agentic_video.systems.timesearch import TimeSearch
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import FrameRef, Trajectory

THOUGHT = "<think>look</think>"
REPLY = "<think>seen</think><answer>B</answer>"
BASE = TimeSearch(overview_max_frames=8, min_frame_tokens=1, seek_min_tokens=1)


def call(name: str = "seek_video_frames", **arguments: Any) -> str:
    return f"{THOUGHT}<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


LOOK = call(start_time=41, end_time=43)


def seen(trajectory: Trajectory, turn: int) -> list[int]:
    return [part.index for part in trajectory.turns[turn].observation if isinstance(part, FrameRef)]


def told(trajectory: Trajectory, turn: int) -> str:
    return "".join(part for part in trajectory.turns[turn].observation if isinstance(part, str))


def score(system: TimeSearch, trajectory: Trajectory, qa: VideoQA, judge: Judge | None = None) -> Score:
    return asyncio.run(system.score(trajectory, qa, Graders(judge=judge)))
