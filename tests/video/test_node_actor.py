"""Actors of which each node has one, through a real local Ray."""

from __future__ import annotations

import asyncio
import os

import pytest

from agentic_video.video.errors import VideoError
from agentic_video.video.node_actor import NodeActor, call_all
from tests.video.conftest import kill_actor

PREFIX = "test-node-actor"


class Counter:
    """Counts its calls from a first number."""

    def __init__(self, first: int) -> None:
        self.count = first

    async def next(self, step: int = 1) -> tuple[int, int]:
        self.count += step
        return self.count, os.getpid()

    async def fail(self) -> VideoError:
        return VideoError("a.mp4", "corrupt", "replace it")


@pytest.mark.ray
def test_a_node_has_one_actor_and_gets_another_when_it_dies(local_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = NodeActor(PREFIX, Counter, [10]), NodeActor(PREFIX, Counter, [99])

    async def use() -> None:
        assert call_all(PREFIX, "next") == []
        first, process = await one.call("next")
        assert first == 11 and process != os.getpid()
        # the first caller's arguments count, for everybody
        assert await other.call("next", 5) == (16, process)
        assert call_all(PREFIX, "next") == [(17, process)]
        with pytest.raises(VideoError) as caught:
            await other.call("fail")
        assert (caught.value.path, caught.value.reason) == ("a.mp4", "corrupt")
        dead = one.handle
        kill_actor(PREFIX)
        with monkeypatch.context() as before_ray_knows:
            before_ray_knows.setattr("agentic_video.video.node_actor.actor_of", lambda prefix, node: dead)
            assert call_all(PREFIX, "next") == []
        again, another = await one.call("next")
        assert again == 11 and another != process

    asyncio.run(use())
