"""Turns of ParaVT as texts, and a small system that plays them."""

import asyncio
from collections.abc import Callable

from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.paravt.system import ParaVT
from agentic_video.types.message import AsideRequest
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import FrameRef, Trajectory, Turn
from tests.conftest import MemorySource

SMALL = ParaVT(overview_least=2, overview_frames=8, max_pixels=1024)
ANSWER = "it is at the end</think><answer>B</answer>"


def crop(start: object, end: object) -> str:
    arguments = f'{{"start_time": {start}, "end_time": {end}}}'
    return f'<tool_call>{{"name": "crop_video", "arguments": {arguments}}}</tool_call>'


def look(*calls: str) -> str:
    return f"look around</think>{''.join(calls)}"


def told(request: AsideRequest) -> str:
    """A sub-agent that says which frames it was shown."""
    return f"frames {', '.join(str(frame.index) for frame in request.frames)}"


def run(
    system: ParaVT,
    qa: VideoQA,
    source: MemorySource,
    *texts: str,
    asides: Callable[[AsideRequest], str] | None = told,
    force_answer: bool = False,
    rollout_index: int = 0,
) -> Trajectory:
    policy = ScriptedPolicy(lambda view: texts[len(view.turns)], asides)
    played = play(system, policy, qa, source, rollout_index=rollout_index, force_answer=force_answer)
    return asyncio.run(played)


def shown(turn: Turn) -> str:
    """The observation as text, a frame as its number."""
    return "".join(f"[{part.index}]" if isinstance(part, FrameRef) else str(part) for part in turn.observation)
