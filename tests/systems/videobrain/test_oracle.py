"""VideoBrain's oracle: its texts, and what it finds in encoded videos."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.videobrain import oracle
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.tools.base import Video
from agentic_video.toyworld import oracles
from agentic_video.toyworld.questions import row_of, scenes
from agentic_video.toyworld.world import COLOURS, WorldRecipe, write_video
from agentic_video.types.row import VideoQA
from agentic_video.video.source import FrameRequest
from agentic_video.video.store import FrameStore
from tests.conftest import MemorySource
from tests.systems.videobrain.texts import (
    score,
    seen,
)

LAPTOP = VideoBrain(
    overview_frames=6,
    max_width=32,
    max_height=32,
    uniform_frames=4,
    clip_candidates=64,
    max_turns=3,
    max_images=24,
    prompt="videobrain_short",
    turn_notice="",
    last_turn_notice="Answer now.",
    answer_match="robust",
)


class Coloured:
    """A retriever that finds a colour by its pixels."""

    def __init__(self, store: FrameStore):
        self.store = store

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        frames = (await self.store.serve(FrameRequest(path, indices))).frames
        return [share(frame.image, prompt) for frame in frames]


def share(image: np.ndarray, colour: str) -> float:
    return float((np.abs(image.astype(int) - COLOURS[colour]).max(-1) < 45).mean())


def test_oracle_finds_what_it_looks_for(tmp_path: Path) -> None:
    kinds = ("colour", "beside", "overview")
    world = WorldRecipe(mixture=tuple((kind, 1 / 3) for kind in kinds))
    store = FrameStore()
    tools = []
    for scene in scenes("heldout", 12, 5, world):
        path = tmp_path / f"{scene.seed}.mp4"
        write_video(scene, path, world)
        qa = row_of(scene, str(path), "heldout")
        trajectory = asyncio.run(play(LAPTOP, ScriptedPolicy(oracles.oracle(oracle.turns)), qa, store, Coloured(store)))
        result = score(LAPTOP, trajectory, qa)
        assert (result.reward, result.acc, result.format) == (pytest.approx(1.55), 1.0, 1.0)
        if scene.event_time is None:
            assert trajectory.tool_calls == 0
            continue
        tools.append(scene.kind)
        frames = store.frames(str(path), seen(trajectory, 0))
        assert len(frames) == 4
        assert max(share(frame.image, scene.answer) for frame in frames) > 0.2, scene
    assert set(tools) == {"colour", "beside"}


def test_it_searches_for_a_colour_or_samples_around_a_second(qa: VideoQA, source: MemorySource) -> None:
    def said(aim: float | None, **extra: str) -> tuple[str, ...]:
        view = EpisodeView(replace(qa, extra=extra), Video("memory", source.info, source))
        return oracle.turns(view, aim, "green", "B")

    reply = "<thinking>it is green</thinking><answer>green</answer>"
    find = (
        '<thinking>find red</thinking><tool_call>{"name": "clip_sample", '
        '"arguments": {"start_frame": 0, "end_frame": 999, "prompt": "red"}}</tool_call>'
    )
    # ten frames a second
    look = (
        '<thinking>look near 42</thinking><tool_call>{"name": "uniform_sample", '
        '"arguments": {"start_frame": 410, "end_frame": 430}}</tool_call>'
    )
    assert said(42.4, kind="beside", beside="red") == (find, reply)
    assert said(42.4, kind="colour") == (look, reply)
    assert said(None, kind="overview") == (reply,)
