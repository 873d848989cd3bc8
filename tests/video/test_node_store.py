"""One store per node, through a real local Ray."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from agentic_video.video.errors import VideoError
from agentic_video.video.node_store import NodeFrameStore
from agentic_video.video.store import StoreConfig
from tests.video.conftest import kill_actor
from tests.video.video_files import number_in


@pytest.mark.ray
def test_clients_of_a_node_share_one_store(local_ray: None, video: Callable[[str], str], tmp_path: Path) -> None:
    path = video("h264_b_frames")
    one = NodeFrameStore(StoreConfig(max_bytes=10**6))
    other = pickle.loads(pickle.dumps(one))

    async def use() -> None:
        assert (await one.aprobe(path)).num_frames == 60
        frames = await one.aframes(path, [30, 2], (128, 64))
        again = await asyncio.gather(*(other.aframes(path, [2, 30], (128, 64)) for _ in range(5)))
        assert [number_in(frame.image) for frame in frames] == [30, 2]
        assert [number_in(frame.image) for frame in again[4]] == [2, 30]
        assert not frames[0].image.flags.writeable
        stats = await other.stats()
        assert (stats.requested, stats.decoded) == (12, 2)
        with pytest.raises(VideoError) as caught:
            await other.aframes(str(tmp_path / "none.mp4"), [0])
        assert caught.value.reason == "missing" and caught.value.path.endswith("none.mp4")

        kill_actor("agentic-video-frames")
        assert [frame.index for frame in await one.aframes(path, [5])] == [5]

    asyncio.run(use())
