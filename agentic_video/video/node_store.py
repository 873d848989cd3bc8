"""One frame store per node of a Ray cluster, found or created by whoever needs it first.

Everything on a node then decodes each frame once, and the frames travel through Ray's shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentic_video.types.frame import Frame
from agentic_video.utils.heap import share_arenas
from agentic_video.video.errors import VideoError
from agentic_video.video.index import VideoInfo
from agentic_video.video.node_actor import NodeActor, call_all
from agentic_video.video.source import Served
from agentic_video.video.store import FrameStore, StoreConfig, StoreStats

STORE_PREFIX = "agentic-video-frames"
"""Of the names of stores; the id of the node follows."""


class StoreActor:
    """The actor: a FrameStore whose errors travel as values."""

    def __init__(self, config: StoreConfig) -> None:
        share_arenas()  # before the store's threads start
        self._store = FrameStore(config)

    async def probe(self, path: str) -> VideoInfo | VideoError:
        try:
            return await self._store.aprobe(path)
        except VideoError as error:
            return error.bare()

    async def keyframes(self, path: str) -> list[int] | VideoError:
        try:
            return await self._store.akeyframes(path)
        except VideoError as error:
            return error.bare()

    async def serve(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> Served | VideoError:
        try:
            return await self._store.aserve(path, indices, size)
        except VideoError as error:
            return error.bare()

    async def serve_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None) -> Served | VideoError:
        try:
            return await self._store.aserve_at(path, times, size)
        except VideoError as error:
            return error.bare()

    async def prefetch(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> int:
        return await self._store.aprefetch(path, indices, size)

    async def prefetch_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None) -> int:
        return await self._store.aprefetch_at(path, times, size)

    async def stats(self) -> StoreStats:
        return self._store.stats()


class NodeFrameStore:
    """A client of the store on the caller's own node; a ServingSource like FrameStore itself.

    Cheap to make and to pickle: an unpickled one finds the store of the node it lands on. The first client on a node
    decides the store's configuration.

    Args:
        config: How the store is bounded.
    """

    def __init__(self, config: StoreConfig | None = None) -> None:
        self._config = config or StoreConfig()
        self._actor = NodeActor(STORE_PREFIX, StoreActor, [self._config])

    def __reduce__(self) -> tuple[type[NodeFrameStore], tuple[StoreConfig]]:
        return NodeFrameStore, (self._config,)

    async def aprobe(self, path: str) -> VideoInfo:
        """As :meth:`FrameStore.aprobe`."""
        return await self._actor.call("probe", path)

    async def akeyframes(self, path: str) -> list[int]:
        """As :meth:`FrameStore.akeyframes`."""
        return await self._actor.call("keyframes", path)

    async def aframes(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> list[Frame]:
        """As :meth:`FrameStore.aframes`; the images lie in Ray's shared memory, read-only."""
        return (await self.aserve(path, indices, size)).frames

    async def aframes_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> list[Frame]:
        """As :meth:`FrameStore.aframes_at`."""
        return (await self.aserve_at(path, times, size)).frames

    async def aserve(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> Served:
        """As :meth:`FrameStore.aserve`."""
        return await self._actor.call("serve", path, list(indices), size)

    async def aserve_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> Served:
        """As :meth:`FrameStore.aserve_at`."""
        return await self._actor.call("serve_at", path, list(times), size)

    async def aprefetch(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> int:
        """As :meth:`FrameStore.aprefetch`."""
        return await self._actor.call("prefetch", path, list(indices), size)

    async def aprefetch_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> int:
        """As :meth:`FrameStore.aprefetch_at`."""
        return await self._actor.call("prefetch_at", path, list(times), size)

    async def stats(self) -> StoreStats:
        """Counts of the node's store so far."""
        return await self._actor.call("stats")


def all_store_stats() -> list[StoreStats]:
    """The counts of every node's store that exists; for a driver's log."""
    return call_all(STORE_PREFIX, "stats")
