"""Turns of VideoZoomer as texts, and a small system that plays them."""

import asyncio

from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory
from tests.conftest import MemorySource

ZOOM = '<think>closer</think><video_zoom>{"segment": [41, 43], "fps": 2}</video_zoom>'
REPLY = "<think>seen</think><answer>B</answer>"
SMALL = VideoZoomer(min_pixels=784, max_pixels=3136)


def run(system: VideoZoomer, qa: VideoQA, source: MemorySource, *texts: str) -> Trajectory:
    return asyncio.run(play(system, ScriptedPolicy(lambda view: texts[len(view.turns)]), qa, source))
