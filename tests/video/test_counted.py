import asyncio
from collections.abc import Callable

import pytest

from agentic_video.video.counted import CountedSource
from agentic_video.video.errors import VideoError
from agentic_video.video.store import FrameStore


def test_an_episode_knows_what_it_took(video: Callable[[str], str]) -> None:
    path, store = video("h264_b_frames"), FrameStore()
    one, other = CountedSource(store), CountedSource(store)

    async def play() -> None:
        assert (await one.aprobe(path)).num_frames == 60
        assert [frame.index for frame in await one.aframes(path, [4, 9, 4])] == [4, 9, 4]
        # 25 frames a second: frame 5 is at 0.2 s
        assert [frame.index for frame in await one.aframes_at(path, [0.2, 0.36])] == [5, 9]
        await other.aframes(path, [4, 5])
        with pytest.raises(VideoError):
            await other.aframes("/none.mp4", [0])

    asyncio.run(play())
    assert (one.requested, one.decoded, other.requested, other.decoded) == (5, 3, 2, 0)
    stats = store.stats()
    # the frame that couldn't be had was asked for too
    assert (stats.requested, stats.decoded, stats.hits) == (8, 3, 4)
    assert one.decode_seconds > 0 and other.decode_seconds == 0
    assert stats.decode_seconds == pytest.approx(one.decode_seconds)
    assert stats.open_seconds > 0
