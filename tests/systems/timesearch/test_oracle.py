"""TimeSearch-R's oracle: its texts, and what it finds in encoded videos."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentic_video.rollout.episode import play
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.timesearch import TimeSearch, oracle
from agentic_video.tools.base import Video
from agentic_video.toyworld import oracles
from agentic_video.toyworld.questions import row_of, scenes
from agentic_video.toyworld.world import WorldRecipe, write_video
from agentic_video.types.frame import Frame
from agentic_video.types.message import AsideRequest, Message
from agentic_video.types.row import VideoQA
from agentic_video.video.store import FrameStore
from tests.conftest import MemorySource
from tests.systems.timesearch.texts import Coloured, score, seen, share

LAPTOP = TimeSearch(
    overview_max_frames=6,
    min_frame_tokens=1,
    max_frame_tokens=1,
    seek_frames=4,
    seek_min_tokens=1,
    seek_max_tokens=1,
    max_turns=3,
    max_images=24,
    prompt="timesearch_short",
    tools_prompt="",
    reply="",
    hint="",
    answer_match="robust",
    csv_prompt="",
)


def test_oracle_finds_what_it_looks_for(tmp_path: Path) -> None:
    kinds = ("colour", "beside", "overview")
    world = WorldRecipe(mixture=tuple((kind, 1 / 3) for kind in kinds))
    store = FrameStore()
    looked = set()
    for scene in scenes("heldout", 16, 5, world):
        path = tmp_path / f"{scene.seed}.mp4"
        write_video(scene, path, world)
        qa = row_of(scene, str(path), "heldout")
        trajectory = asyncio.run(play(LAPTOP, oracles.oracle_policy(oracle.turns), qa, store, Coloured(store)))
        found = score(LAPTOP, trajectory, qa)
        if scene.event_time is None:
            # nothing was searched for: nothing is complete
            assert (trajectory.tool_calls, found.reward) == (0, pytest.approx(1.5))
            continue
        assert (found.reward, trajectory.tool_calls) == (pytest.approx(2.0), 1)
        looked.add(scene.kind)
        frames = store.frames(str(path), seen(trajectory, 0))
        assert 3 <= len(frames) <= 4
        assert max(share(frame.image, scene.answer) for frame in frames) > 0.1, scene
    assert looked == {"colour", "beside"}


def test_it_searches_for_a_colour_or_at_a_second(qa: VideoQA, source: MemorySource) -> None:
    def said(aim: float | None, **extra: str) -> tuple[str, ...]:
        view = EpisodeView(replace(qa, extra=extra), Video("memory", source.info, source))
        return oracle.turns(view, aim, "green", "B")

    reply = "<think>it is green</think><answer>green</answer>"

    def look(thought: str, arguments: str) -> str:
        call = f'{{"name": "seek_video_frames", "arguments": {{{arguments}}}}}'
        return f"<think>{thought}</think><tool_call>{call}</tool_call>"

    assert said(42.4, kind="beside", beside="red") == (look("find red", '"query": "red"'), reply)
    assert said(42.4, kind="colour") == (look("look near 42", '"start_time": 42, "end_time": 43'), reply)
    assert said(42.4, kind="order") == (look("look near 42", '"start_time": 41, "end_time": 43'), reply)
    assert said(None, kind="overview") == (reply,)


@pytest.mark.parametrize(
    ("times", "event", "said"),
    [
        ([3.0, 12.4], 12.0, "<think>it is red</think><answer>red</answer>"),
        ([3.0, 12.5], 12.0, "<think>not seen</think>"),  # it lasts from 11.55 to 12.45 s
        ([3.0], None, "<think>not seen</think>"),
    ],
)
def test_its_verification_knows_what_the_frames_show(
    qa: VideoQA, times: list[float], event: float | None, said: str
) -> None:
    extra = {"event_time": event, "event_seconds": 0.9, "answer_text": "red"}
    frames = tuple(Frame(0, time, np.zeros((2, 2, 3), np.uint8)) for time in times)
    assert oracle.asides(replace(qa, extra=extra), AsideRequest((Message("user", frames),), 9)) == said
