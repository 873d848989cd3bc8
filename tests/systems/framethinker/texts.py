"""Turns of FrameThinker as texts, and a small system that plays them."""

import asyncio

from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import System
from agentic_video.systems.framethinker.system import FrameThinker
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory
from tests.conftest import MemorySource

LOOKUP = "<think>when is 00:42</think><action>get frame number at time 00:42</action>"
LOOK = "<think>look between 410 and 430</think><action>choose frames between 410 and 430</action>"
ELSEWHERE = "<think>look between 100 and 200</think><action>choose frames between 100 and 200</action>"
UNFAITHFUL = "<think>look near 420</think><action>choose frames between 100 and 200</action>"
REPLY = "<think>it is green B</think><action>output answer: B</action>"
WRONG = "<think>it is red A</think><action>output answer: A</action>"
SMALL = FrameThinker(
    overview_frames=6,
    look_frames=4,
    max_width=28,
    max_height=28,
    long_overview_frames=6,
    long_look_frames=4,
    max_turns=4,
    prompt="framethinker_short",
)


def run(system: System, qa: VideoQA, source: MemorySource, *texts: str) -> Trajectory:
    return asyncio.run(play(system, ScriptedPolicy(lambda view: texts[len(view.turns)]), qa, source))


def reward(system: System, trajectory: Trajectory, qa: VideoQA) -> float:
    return asyncio.run(system.score(trajectory, qa, Graders())).reward
