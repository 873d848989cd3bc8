import asyncio
from collections.abc import Callable

import numpy as np

from agentic_video.types.frame import Frame
from agentic_video.video.source import FrameSource, Served, ServingSource
from agentic_video.video.store import FrameStore


def content(frames: list[Frame]) -> list[tuple[int, float, bytes]]:
    return [(frame.index, frame.time, np.ascontiguousarray(frame.image).tobytes()) for frame in frames]


def test_what_is_served_are_the_frames_that_a_plain_source_gives(video: Callable[[str], str]) -> None:
    path = video("h264_b_frames")

    async def plain(source: FrameSource) -> list[list[Frame]]:
        return [await source.aframes(path, [7, 3, 7], (64, 32)), await source.aframes_at(path, [0.3, 9.0], (64, 32))]

    async def serving(source: ServingSource) -> list[Served]:
        return [await source.aserve(path, [7, 3, 7], (64, 32)), await source.aserve_at(path, [0.3, 9.0], (64, 32))]

    given = asyncio.run(plain(FrameStore()))
    served = asyncio.run(serving(FrameStore()))
    assert [[frame.index for frame in frames] for frames in given] == [[7, 3, 7], [7, 59]]
    assert [content(one.frames) for one in served] == [content(frames) for frames in given]
    # frame 7 was decoded before it was asked for by its time
    assert [one.decoded for one in served] == [2, 1] and all(one.decode_seconds > 0 for one in served)
