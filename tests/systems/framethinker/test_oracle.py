"""FrameThinker's oracle: its texts, and what it finds in encoded videos."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.framethinker import oracle
from agentic_video.tools.base import Video
from agentic_video.toyworld.questions import build_world
from agentic_video.toyworld.world import COLOURS, WorldRecipe, make_scene
from agentic_video.types.frame import Frame
from agentic_video.types.message import Part
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory
from agentic_video.video.store import FrameStore
from tests.conftest import MemorySource
from tests.systems.framethinker.texts import LOOK, LOOKUP, SMALL, reward


class Watching(ScriptedPolicy):
    """The oracle, keeping the frames that it is shown after the overview."""

    def __init__(self, turns: tuple[str, ...]):
        super().__init__(lambda view: turns[len(view.turns)])
        self.shown: list[Frame] = []

    async def show(self, parts: Sequence[Part]) -> bool:
        self.shown += [part for part in parts if isinstance(part, Frame)]
        return True


def test_the_oracle_finds_the_event_of_encoded_videos(tmp_path: Path) -> None:
    recipe = WorldRecipe(fps=10, mixture=(("colour", 0.7), ("overview", 0.3)))
    build_world(tmp_path, train=0, heldout=6, seed=11, recipe=recipe)
    store = FrameStore()
    rewards = []
    for row in pq.read_table(tmp_path / "heldout.parquet").to_pylist():
        qa = VideoQA.from_row({**row, "video": str(tmp_path / row["video"])})
        scene = make_scene(qa.extra["seed"], recipe)
        info = store.probe(qa.video)
        assert info.fps == pytest.approx(10.0)

        async def episode(qa: VideoQA = qa) -> tuple[Watching, Trajectory]:
            view = EpisodeView(qa, await Video.open(qa.video, store))
            turns = oracle.turns(view, qa.extra["event_time"], qa.extra["answer_text"], qa.answer)
            policy = Watching(turns)
            return policy, await play(SMALL, policy, qa, store)

        policy, trajectory = asyncio.run(episode())
        # Whatever the world's wording, the second is asked about as a clock time.
        timed = qa if scene.event_time is None else replace(qa, question="At 00:11? " + qa.question)
        rewards.append(reward(SMALL, trajectory, timed))
        if scene.event_time is not None:
            second = int(scene.event_time)
            assert trajectory.turns[0].observation == (f"The frame at 00:{second:02d} is: {second * 10}",)
            colour = np.array(COLOURS[scene.answer])
            shares = [float((np.abs(frame.image.astype(int) - colour).max(-1) < 45).mean()) for frame in policy.shown]
            assert len(shares) == 4
            assert max(shares) > 0.2, scene
    assert sorted({round(value, 2) for value in rewards}) == [1.0, 1.52]


def test_the_oracle_speaks_from_the_digits_of_the_second(asked: VideoQA, source: MemorySource) -> None:
    view = EpisodeView(asked, Video("memory", source.info, source))
    reply = "<think>it is green</think><action>output answer: green</action>"
    assert oracle.turns(view, 42, "green", "B") == (LOOKUP, LOOK, reply)
    assert oracle.turns(view, None, "green", "B") == (reply,)
