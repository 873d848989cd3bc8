"""One request for all sources, directly and through the store actor of a node."""

import asyncio
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from agentic_video.video.errors import VideoError
from agentic_video.video.node_store import NodeActor, NodeFrameStore, call_all
from agentic_video.video.source import CountingSource, FrameRequest
from agentic_video.video.store import FrameStore
from agentic_video.video.store_config import StoreConfig
from tests.video.conftest import kill_actor
from tests.video.video_files import number_in

PREFIX = "test-node-actor"


def test_a_request_asks_for_facts_keyframes_numbers_or_times(video: Callable[[str], str]) -> None:
    path, store = video("h264_b_frames"), FrameStore()

    async def use() -> None:
        facts = await store.serve(FrameRequest(path, keyframes=True))
        assert (facts.info.num_frames, facts.keyframes, facts.frames) == (60, [0, 12, 24, 36, 48], [])
        numbers = await store.serve(FrameRequest(path, [7, 3, 7], size=(64, 32)))
        assert [frame.index for frame in numbers.frames] == [7, 3, 7] and numbers.decoded == 2
        # frame 7 (at 0.28 s) is in the store already
        times = await store.serve(FrameRequest(path, times=[0.3, 9.0], size=(64, 32)))
        assert [frame.index for frame in times.frames] == [7, 59] and times.decoded == 1
        assert times.frames[0].key == numbers.frames[0].key and times.decode_seconds > 0

    asyncio.run(use())


def test_episodes_count_their_own_frames(video: Callable[[str], str]) -> None:
    path, store = video("h264_b_frames"), FrameStore()
    first, second = CountingSource(store), CountingSource(store)

    async def play() -> None:
        await first.serve(FrameRequest(path))
        await first.serve(FrameRequest(path, [4, 9, 4]))
        await first.serve(FrameRequest(path, times=[0.2, 0.36]))  # 25 frames a second: 5 and 9
        await second.serve(FrameRequest(path, [4, 5]))
        with pytest.raises(VideoError):
            await second.serve(FrameRequest("/none.mp4", [0]))

    asyncio.run(play())
    assert (first.requested, first.decoded, second.requested, second.decoded) == (5, 3, 2, 0)
    stats = store.stats()
    assert (stats.requested, stats.decoded, stats.hits) == (8, 3, 4), "the missing video's frame was requested, too"
    assert first.decode_seconds > 0 and second.decode_seconds == 0
    assert stats.decode_seconds == pytest.approx(first.decode_seconds) and stats.open_seconds > 0


@pytest.mark.ray
def test_clients_of_a_node_share_one_store(local_ray: None, video: Callable[[str], str], tmp_path: Path) -> None:
    path = video("h264_b_frames")
    client = NodeFrameStore(StoreConfig(max_bytes=10**6))
    other = pickle.loads(pickle.dumps(client))

    async def use() -> None:
        assert (await client.serve(FrameRequest(path))).info.num_frames == 60
        frames = (await client.serve(FrameRequest(path, [30, 2], size=(128, 64)))).frames
        requests = (other.serve(FrameRequest(path, [2, 30], size=(128, 64))) for _ in range(5))
        again = (await asyncio.gather(*requests))[4].frames
        assert [number_in(frame.image) for frame in frames] == [30, 2]
        assert [number_in(frame.image) for frame in again] == [2, 30]
        assert not frames[0].image.flags.writeable
        stats = await other.stats()
        assert (stats.requested, stats.decoded) == (12, 2)
        with pytest.raises(VideoError) as caught:
            await other.serve(FrameRequest(str(tmp_path / "none.mp4"), [0]))
        assert caught.value.reason == "missing"
        kill_actor("agentic-video-frames")
        assert [frame.index for frame in (await client.serve(FrameRequest(path, [5]))).frames] == [5]

    asyncio.run(use())


class Counter:
    def __init__(self, first: int) -> None:
        self.count = first

    async def next(self, step: int = 1) -> tuple[int, int]:
        self.count += step
        return self.count, os.getpid()

    async def fail(self) -> VideoError:
        return VideoError("a.mp4", "corrupt", "replace it")


@pytest.mark.ray
def test_a_node_has_one_actor_and_gets_another_when_it_dies(local_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    client, other = NodeActor(PREFIX, Counter, [10]), NodeActor(PREFIX, Counter, [99])

    async def use() -> None:
        assert call_all(PREFIX, "next") == []
        first, process = await client.call("next")
        assert first == 11 and process != os.getpid()
        assert await other.call("next", 5) == (16, process), "the first caller's arguments count"
        assert call_all(PREFIX, "next") == [(17, process)]
        with pytest.raises(VideoError) as caught:
            await other.call("fail")
        assert (caught.value.path, caught.value.reason) == ("a.mp4", "corrupt")
        dead = client.handle
        kill_actor(PREFIX)
        with monkeypatch.context() as before_ray_knows:
            before_ray_knows.setattr("agentic_video.video.node_store.actor_of", lambda prefix, node: dead)
            assert call_all(PREFIX, "next") == []
        again, another = await client.call("next")
        assert again == 11 and another != process

    asyncio.run(use())
