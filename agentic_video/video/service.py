"""One frame store per node of a Ray cluster, found or created by whoever needs it first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentic_video.video.frames import Frame
from agentic_video.video.reader import VideoError, VideoInfo
from agentic_video.video.store import FrameStore, Served, StoreConfig, StoreStats

_PREFIX = "agentic-video-frames"
_CONCURRENCY = 1000


class NodeActor:
    """An actor of which each node has one: found there by its name, or created by whoever calls it first.

    It lives as long as the process that created it; when that is gone, the next call creates another.

    Args:
        prefix: Start of the actor's name; the node's id follows.
        cls: The actor's class, with async methods.
        arguments: For its constructor; those of the first caller on a node count.
        options: Ray's options for it, beside its name and place.
    """

    def __init__(
        self, prefix: str, cls: type[Any], arguments: Sequence[Any], options: Mapping[str, Any] | None = None
    ) -> None:
        self._prefix, self._cls, self._arguments = prefix, cls, tuple(arguments)
        self._options = dict(options or {})
        self._handle: Any = None

    async def call(self, method: str, *arguments: object) -> Any:
        """Calls a method of the actor on this node.

        Raises:
            VideoError: The method returned one: errors travel as values, because Ray wraps those that are raised.
        """
        import ray

        if self._handle is None:
            self._handle = self._find()
        try:
            answer = await getattr(self._handle, method).remote(*arguments)
        except ray.exceptions.ActorDiedError:
            self._handle = self._find()
            answer = await getattr(self._handle, method).remote(*arguments)
        if isinstance(answer, VideoError):
            raise answer
        return answer

    def _find(self) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = ray.get_runtime_context().get_node_id()
        return (
            ray.remote(self._cls)
            .options(
                name=f"{self._prefix}-{node}",
                get_if_exists=True,
                num_cpus=0,
                max_concurrency=_CONCURRENCY,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
                **self._options,
            )
            .remote(*self._arguments)
        )


def call_all(prefix: str, method: str) -> list[Any]:
    """Calls a method of every node's actor of a name that exists; for a driver's log."""
    import ray

    handles = []
    for node in ray.nodes():
        try:
            handles.append(ray.get_actor(f"{prefix}-{node['NodeID']}"))
        except ValueError:  # no episode ran on that node
            continue
    return list(ray.get([getattr(handle, method).remote() for handle in handles]))


class _StoreActor:
    """The actor: a FrameStore whose errors travel as values."""

    def __init__(self, config: StoreConfig) -> None:
        self._store = FrameStore(config)

    async def probe(self, path: str) -> VideoInfo | VideoError:
        try:
            return await self._store.aprobe(path)
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

    async def stats(self) -> StoreStats:
        return self._store.stats()


class NodeFrameStore:
    """A client of the store on the caller's own node; a FrameSource like FrameStore itself.

    Cheap to make and to pickle: an unpickled one finds the store of the node it lands on. The first client on a node
    decides the store's configuration.
    """

    def __init__(self, config: StoreConfig | None = None) -> None:
        self._config = config or StoreConfig()
        self._actor = NodeActor(_PREFIX, _StoreActor, [self._config])

    def __reduce__(self) -> tuple[type[NodeFrameStore], tuple[StoreConfig]]:
        return NodeFrameStore, (self._config,)

    async def aprobe(self, path: str) -> VideoInfo:
        """As `FrameStore.aprobe`."""
        return await self._actor.call("probe", path)

    async def aframes(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> list[Frame]:
        """As `FrameStore.aframes`; the images lie in Ray's shared memory, read-only."""
        return (await self.aserve(path, indices, size)).frames

    async def aframes_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> list[Frame]:
        """As `FrameStore.aframes_at`."""
        return (await self.aserve_at(path, times, size)).frames

    async def aserve(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> Served:
        """As `FrameStore.aserve`."""
        return await self._actor.call("serve", path, list(indices), size)

    async def aserve_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> Served:
        """As `FrameStore.aserve_at`."""
        return await self._actor.call("serve_at", path, list(times), size)

    async def stats(self) -> StoreStats:
        """Counts of the node's store so far."""
        return await self._actor.call("stats")


def all_store_stats() -> list[StoreStats]:
    """The counts of every node's store that exists; for a driver's log."""
    return call_all(_PREFIX, "stats")
