"""Turns of FrameMind as texts, and a small system that plays them."""

import asyncio

from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.framemind.ladder import FrameSampling
from agentic_video.systems.framemind.system import FrameMind
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import FrameRef, Trajectory
from tests.conftest import MemorySource

SMALL = FrameMind(
    low=FrameSampling(8, 28, 28),
    high=FrameSampling(4, 56, 56),
    tool_side=28,
    clip_min_frames=4,
    clip_max_frames=6,
    max_images=24,
)
REPLY = "<think>seen</think><answer>B</answer>"
REST = "<think>hm</think><turn_sum>nothing yet</turn_sum>"


def at(seconds: object) -> str:
    return f'<tool_call>{{"name": "FrameAt", "arguments": {{"t": {seconds}}}}}</tool_call>'


def clip(start: object, end: object) -> str:
    return f'<tool_call>{{"name": "VideoClip", "arguments": {{"t_start": {start}, "t_end": {end}}}}}</tool_call>'


def look(*calls: str) -> str:
    return f"<think>closer</think>{''.join(calls)}<turn_sum>a</turn_sum>"


def run(system: FrameMind, qa: VideoQA, source: MemorySource, *texts: str, rollout_index: int = 0) -> Trajectory:
    policy = ScriptedPolicy(lambda view: texts[len(view.turns)])
    return asyncio.run(play(system, policy, qa, source, rollout_index=rollout_index))


def times(trajectory: Trajectory, turn: int) -> list[float]:
    return [part.time for part in trajectory.turns[turn].observation if isinstance(part, FrameRef)]
