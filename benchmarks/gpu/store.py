"""Frames of a video in a node's frame store, as a trainer's rank finds them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray

from agentic_video.types.frame import ImageRef
from agentic_video.video.node_store import NodeFrameStore, node_id
from agentic_video.video.source import FrameRequest
from agentic_video.video.store_config import StoreConfig
from benchmarks.throughput.rollouts import make_video

STEP = 25
"""Frames of the video between two that are shown."""


@contextmanager
def stored_frames(video: Path, sequences: int, images: int, size: tuple[int, int]) -> Iterator[list[list[ImageRef]]]:
    """References to so many frames of each sequence, all of them different, in a Ray of their own."""
    make_video(video)
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        store, node = NodeFrameStore(StoreConfig()), node_id()

        async def shown(first: int) -> list[ImageRef]:
            request = FrameRequest(str(video), [first + STEP * place for place in range(images)], size=size)
            return [ImageRef.of(frame, node) for frame in (await store.serve(request)).frames]

        yield [asyncio.run(shown(number)) for number in range(sequences)]
    finally:
        ray.shutdown()
