"""An episode's first frames before the episode."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.rollout.prefetch import prefetch_opening
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.shown import OverviewKind
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.tools.base import Video
from agentic_video.types.row import VideoQA
from agentic_video.video.store import FrameStore
from tests.video.video_files import SPECS, make


@pytest.mark.parametrize("overview", ["uniform", "rate", "keyframes", "none"])
def test_a_prefetched_opening_decodes_nothing(qa: VideoQA, tmp_path: Path, overview: OverviewKind) -> None:
    store, path = FrameStore(), str(make(tmp_path / "a.mp4", SPECS["h264_b_frames"]))
    system, row = VideoZoomer(overview=overview, overview_max_frames=4, overview_fps=1.0), replace(qa, video=path)

    async def play() -> None:
        ready = await prefetch_opening(system, row, store)
        before = store.stats()
        assert ready == before.decoded == before.prefetched and before.requested == 0
        await system.opening(EpisodeView(row, await Video.open(path, store)))
        after = store.stats()
        assert after.requested == after.hits == ready and after.decoded == before.decoded

    asyncio.run(play())


def test_a_video_that_cannot_be_read_is_left_to_the_episode(qa: VideoQA) -> None:
    assert asyncio.run(prefetch_opening(VideoZoomer(), replace(qa, video="missing.mp4"), FrameStore())) == 0
