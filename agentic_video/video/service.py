"""One frame store per node of a Ray cluster, found or created by whoever needs it first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from agentic_video.video.frames import Frame
from agentic_video.video.reader import VideoError, VideoInfo
from agentic_video.video.store import FrameStore, StoreConfig, StoreStats

T = TypeVar("T")

_CONCURRENCY = 1000


class _StoreActor:
    """The actor: a FrameStore whose errors travel as values, because Ray wraps those that are raised."""

    def __init__(self, config: StoreConfig) -> None:
        self._store = FrameStore(config)

    async def probe(self, path: str) -> VideoInfo | VideoError:
        try:
            return await self._store.aprobe(path)
        except VideoError as error:
            return error.bare()

    async def frames(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> list[Frame] | VideoError:
        try:
            return await self._store.aframes(path, indices, size)
        except VideoError as error:
            return error.bare()

    async def frames_at(
        self, path: str, times: Sequence[float], size: tuple[int, int] | None
    ) -> list[Frame] | VideoError:
        try:
            return await self._store.aframes_at(path, times, size)
        except VideoError as error:
            return error.bare()

    async def stats(self) -> StoreStats:
        return self._store.stats()


class NodeFrameStore:
    """A client of the store on the caller's own node; a FrameSource like FrameStore itself.

    Cheap to make and to pickle: an unpickled one finds the store of the node it lands on. The first client on a node
    decides the store's configuration. The store lives as long as the process that created it; when that is gone, the
    next call creates another.
    """

    def __init__(self, config: StoreConfig | None = None) -> None:
        self._config = config or StoreConfig()
        self._actor: Any = None

    def __reduce__(self) -> tuple[type[NodeFrameStore], tuple[StoreConfig]]:
        return NodeFrameStore, (self._config,)

    async def aprobe(self, path: str) -> VideoInfo:
        """As `FrameStore.aprobe`."""
        info = await self._call("probe", path)
        return _result(info)

    async def aframes(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> list[Frame]:
        """As `FrameStore.aframes`; the images lie in Ray's shared memory, read-only."""
        frames = await self._call("frames", path, list(indices), size)
        return _result(frames)

    async def aframes_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> list[Frame]:
        """As `FrameStore.aframes_at`."""
        frames = await self._call("frames_at", path, list(times), size)
        return _result(frames)

    async def stats(self) -> StoreStats:
        """Counts of the node's store so far."""
        return await self._call("stats")

    async def _call(self, method: str, *arguments: object) -> Any:
        import ray

        if self._actor is None:
            self._actor = _node_actor(self._config)
        try:
            return await getattr(self._actor, method).remote(*arguments)
        except ray.exceptions.ActorDiedError:
            self._actor = _node_actor(self._config)
            return await getattr(self._actor, method).remote(*arguments)


def _node_actor(config: StoreConfig) -> Any:
    """Finds the store of this node, or creates it there."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = ray.get_runtime_context().get_node_id()
    return (
        ray.remote(_StoreActor)
        .options(
            name=_actor_name(node),
            get_if_exists=True,
            num_cpus=0,
            max_concurrency=_CONCURRENCY,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        .remote(config)
    )


def all_store_stats() -> list[StoreStats]:
    """The counts of every node's store that exists; for a driver's log."""
    import ray

    handles = []
    for node in ray.nodes():
        try:
            handles.append(ray.get_actor(_actor_name(node["NodeID"])))
        except ValueError:  # no episode ran on that node
            continue
    return list(ray.get([handle.stats.remote() for handle in handles]))


def _actor_name(node: str) -> str:
    return f"agentic-video-frames-{node}"


def _result(answer: T | VideoError) -> T:
    if isinstance(answer, VideoError):
        raise answer
    return answer
