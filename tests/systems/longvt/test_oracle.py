"""LongVT's oracle: its texts, and what it earns on an encoded video."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.longvt import oracle
from agentic_video.tools.base import Video
from agentic_video.toyworld.oracles import oracle as script
from agentic_video.toyworld.questions import row_of
from agentic_video.toyworld.world import WorldRecipe, make_scene, write_video
from agentic_video.types.row import VideoQA
from agentic_video.video.store import FrameStore
from tests.conftest import MemorySource
from tests.systems.longvt.texts import SMALL, run, times

CALL = '<tool_call>{"name": "crop_video", "arguments": {"start_time": 41, "end_time": 43}}</tool_call>'
LOOK = "<think>look near 42</think>" + CALL
REPLY = "<think>it is green</think><answer>green</answer>"
LAPTOP = replace(SMALL, crop_fps=2.0, crop_max_frames=8, video_path="none")


def test_the_oracle_crops_around_the_event_or_answers_at_once(qa: VideoQA, source: MemorySource) -> None:
    view = EpisodeView(qa, Video("memory", source.info, source))
    assert oracle.turns(view, 42.4, "green", "B") == (LOOK, REPLY)
    assert oracle.turns(view, None, "green", "B") == (REPLY,)


def test_the_middle_two_of_its_four_frames_lie_within_the_event(qa: VideoQA, source: MemorySource) -> None:
    shown = times(run(LAPTOP, qa, source, LOOK, REPLY))
    assert [abs(time - 42) < 0.45 for time in shown] == [False, True, True, False]


@pytest.mark.parametrize(("kind", "acc", "time"), [("colour", 1.0, 0.45), ("when", 1.0, 0.0), ("overview", 1.0, 0.0)])
def test_what_it_earns(tmp_path: Path, kind: str, acc: float, time: float) -> None:
    recipe = WorldRecipe(max_seconds=40, mixture=((kind, 1.0),))
    scene = make_scene(5, recipe)
    write_video(scene, tmp_path / "v.mp4", recipe)
    qa = row_of(scene, str(tmp_path / "v.mp4"), "heldout")
    turns = script(oracle.turns)
    trajectory = asyncio.run(play(LAPTOP, ScriptedPolicy(turns), qa, FrameStore()))
    score = asyncio.run(LAPTOP.score(trajectory, qa, Graders()))
    # 0.9 of two seconds
    expected = {"acc": acc, "format": 1.0, "time": time, "tool": 0.0}
    assert score.terms == pytest.approx(expected) and trajectory.illegal_calls == 0
