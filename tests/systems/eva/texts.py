"""Turns of EVA as texts, and a small system that plays them."""

import asyncio

from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.eva.system import Eva
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import FrameRef, Trajectory
from tests.conftest import MemorySource


def call(start: object = 41, end: object = 43, nframes: object = 4, resize: object = 1) -> str:
    arguments = f'{{"start_time": {start}, "end_time": {end}, "nframes": {nframes}, "resize": {resize}}}'
    return f'<tool_call>{{"tool": "frame_select", "arguments": {arguments}}}</tool_call>'


LOOK = "<think>near 42</think>" + call()
REPLY = "<think>seen</think><answer>B</answer>"
SMALL = Eva(min_pixels=784, max_pixels=784, max_tokens=16, max_frames=16, max_images=48, csv=False)


def run(system: Eva, qa: VideoQA, source: MemorySource, *texts: str) -> Trajectory:
    return asyncio.run(play(system, ScriptedPolicy(lambda view: texts[len(view.turns) % len(texts)]), qa, source))


def refs(trajectory: Trajectory, turn: int = 0) -> list[FrameRef]:
    return [part for part in trajectory.turns[turn].observation if isinstance(part, FrameRef)]
