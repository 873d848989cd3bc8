"""Turns of LongVT as texts, and a small system that plays them."""

import asyncio

from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.longvt.system import LongVT
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import FrameRef, Trajectory
from tests.conftest import MemorySource


def call(start: object = 41, end: object = 43, path: str = '"memory"') -> str:
    arguments = f'{{"video_path": {path}, "start_time": {start}, "end_time": {end}}}'
    return f'<tool_call>{{"name": "crop_video", "arguments": {arguments}}}</tool_call>'


LOOK = "<think>near 42</think>" + call()
REPLY = "<think>seen</think><answer>B</answer>"
SMALL = LongVT(overview_max_frames=6, min_pixels=784, max_pixels=784, crop_max_frames=16, max_images=96)


def run(system: LongVT, qa: VideoQA, source: MemorySource, *texts: str) -> Trajectory:
    return asyncio.run(play(system, ScriptedPolicy(lambda view: texts[len(view.turns) % len(texts)]), qa, source))


def times(trajectory: Trajectory, turn: int = 0) -> list[float]:
    return [part.time for part in trajectory.turns[turn].observation if isinstance(part, FrameRef)]
