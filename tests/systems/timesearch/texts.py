"""Turns of TimeSearch-R's agents, with a retriever and the policy's asides."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentic_video.graders.base import Graders
from agentic_video.graders.judge import Judge
from agentic_video.systems.timesearch import TimeSearch
from agentic_video.toyworld.world import COLOURS
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import FrameRef, Trajectory
from agentic_video.video.source import FrameRequest
from agentic_video.video.store import FrameStore

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


class Directions:
    """A retriever whose frames and text are directions in the plane, by their degrees; keeps what it was asked."""

    def __init__(self, text: float, frames: Mapping[int, float]):
        self.text, self.frames = text, frames
        self.asked: list[tuple[str, list[int]]] = []

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        raise NotImplementedError

    async def acompare(self, path: str, indices: Sequence[int], prompt: str) -> tuple[np.ndarray, np.ndarray]:
        self.asked.append((prompt, list(indices)))
        angles = np.radians([self.frames[index] for index in indices])
        return np.cos(angles - np.radians(self.text)), np.cos(angles[:, None] - angles)


class Coloured:
    """A retriever that finds a colour by its pixels, and tells frames apart by theirs."""

    def __init__(self, store: FrameStore):
        self.store = store

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        return [share(frame.image, prompt) for frame in (await self.store.serve(FrameRequest(path, indices))).frames]

    async def acompare(self, path: str, indices: Sequence[int], prompt: str) -> tuple[np.ndarray, np.ndarray]:
        rows = np.stack(
            [frame.image.mean((0, 1)) for frame in (await self.store.serve(FrameRequest(path, indices))).frames]
        )
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return np.array(await self.asimilarities(path, indices, prompt)), rows @ rows.T


def share(image: np.ndarray, colour: str) -> float:
    """Share of a picture that is of a colour."""
    return float((np.abs(image.astype(int) - COLOURS[colour]).max(-1) < 45).mean())
