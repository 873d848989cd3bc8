"""Turns of Video-o3 as texts, and a small system that plays them."""

import asyncio

from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.videoo3 import VideoO3
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory
from tests.conftest import MemorySource

SMALL = VideoO3(overview_max_frames=8, overview_tokens=16, frame_min_tokens=1, frame_max_tokens=4)
REPLY = "<think>seen</think><answer>B</answer>"


def ground(start: object, end: object, strategy: str = "medium") -> str:
    """A turn that looks at a segment."""
    call = f'{{"temporal_segment": [{start}, {end}], "sampling_strategy": "{strategy}"}}'
    return f"<think>closer</think><grounding>{call}</grounding>"


def run(system: VideoO3, qa: VideoQA, source: MemorySource, *texts: str) -> Trajectory:
    """An episode of these turns; the last one is repeated."""
    policy = ScriptedPolicy(lambda view: texts[min(len(view.turns), len(texts) - 1)])
    return asyncio.run(play(system, policy, qa, source))
