"""Actors of which each node of a Ray cluster has one, and the frame store that is such an actor.

Each node decodes a frame once, and the frames travel through Ray's shared memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from agentic_video.utils.process import share_arenas
from agentic_video.video.errors import VideoError
from agentic_video.video.source import FrameReply, FrameRequest
from agentic_video.video.store import FrameStore
from agentic_video.video.store_config import StoreConfig, StoreStats

STORE_PREFIX = "agentic-video-frames"
"""Start of the stores' actor names; the id of the node follows."""
_CONCURRENCY = 1000
"""Most calls under way at one actor, which only waits for its threads or its event loop."""
_PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0)
"""Seconds before looking for a dead actor again: Ray may still return the dead one by its name."""


class NodeActor:
    """An actor of which each node has one: found by its name, or created by the first caller.

    It lives as long as the process that created it; after that, the next call creates another.

    Args:
        prefix: Start of the actor's name; the node's id follows.
        cls: The actor's class, with async methods.
        arguments: For its constructor; those of the first caller on a node count.
        options: More Ray options.
    """

    def __init__(
        self, prefix: str, cls: type[Any], arguments: Sequence[Any], options: Mapping[str, Any] | None = None
    ) -> None:
        self._prefix, self._cls, self._arguments = prefix, cls, tuple(arguments)
        self._options = dict(options or {})
        self._handle: Any = None
        self._lock = threading.Lock()

    async def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the actor on this node; a VideoError that it returns is raised.

        Errors travel as values, because Ray wraps raised ones.
        """
        import ray

        for pause in (*_PAUSES, None):
            handle = await self._find_off_loop()
            try:
                answer = await getattr(handle, method).remote(*arguments)
                break
            except ray.exceptions.ActorDiedError:
                self.forget(handle)
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        if isinstance(answer, VideoError):
            raise answer
        return answer

    @property
    def handle(self) -> Any:
        """Ray's handle of the actor on this node."""
        with self._lock:  # the actor ends when the handle that made it is dropped: there must be no second one
            if self._handle is None:
                self._handle = self._find()
            return self._handle

    async def _find_off_loop(self) -> Any:
        # Ray looks an actor up with a call that blocks.
        return self._handle if self._handle is not None else await asyncio.to_thread(lambda: self.handle)

    def forget(self, handle: Any) -> None:
        """Look for the actor again at the next call, because this handle's has died."""
        with self._lock:
            if self._handle is handle:
                self._handle = None

    def _find(self) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = node_id()
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


def node_id() -> str:
    """Return the id of the Ray node that this process runs on."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def actor_of(prefix: str, node: str) -> Any | None:
    """Return the handle of a node's actor; None if it has none, or the node is gone."""
    import ray

    try:
        return ray.get_actor(f"{prefix}-{node}")
    except ValueError:
        return None


def call_all(prefix: str, method: str) -> list[Any]:
    """Call a method without arguments on every node's actor; nodes without one, or whose actor died, are skipped."""
    import ray

    handles = [actor_of(prefix, node["NodeID"]) for node in ray.nodes()]
    answers = []
    for call in [getattr(handle, method).remote() for handle in handles if handle is not None]:
        with contextlib.suppress(ray.exceptions.RayActorError):
            answers.append(ray.get(call))
    return answers


class StoreActor:
    """The actor: a FrameStore whose errors travel as values."""

    def __init__(self, config: StoreConfig) -> None:
        share_arenas()  # before the store's threads start
        self._store = FrameStore(config)

    async def serve(self, request: FrameRequest) -> FrameReply | VideoError:
        try:
            return await self._store.serve(request)
        except VideoError as error:
            return error.bare()

    async def stats(self) -> StoreStats:
        return self._store.stats()


class NodeFrameStore:
    """A client of the store on the caller's own node; a FrameSource.

    Cheap to make and to pickle: an unpickled one finds the store of the node it lands on. The first client on a node
    decides the store's configuration. Images lie in Ray's shared memory, read-only.
    """

    def __init__(self, config: StoreConfig | None = None) -> None:
        self._config = config or StoreConfig()
        self._actor = NodeActor(STORE_PREFIX, StoreActor, [self._config])

    def __reduce__(self) -> tuple[type[NodeFrameStore], tuple[StoreConfig]]:
        return NodeFrameStore, (self._config,)

    async def serve(self, request: FrameRequest) -> FrameReply:
        return await self._actor.call("serve", request)

    async def stats(self) -> StoreStats:
        """Counts of the node's store so far."""
        return await self._actor.call("stats")


def all_store_stats() -> list[StoreStats]:
    """Counts of every node's store; for a driver's log."""
    return call_all(STORE_PREFIX, "stats")
