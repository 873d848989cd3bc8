"""An actor of which each node of a Ray cluster has one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from agentic_video.video.errors import VideoError

_CONCURRENCY = 1000
"""Calls that an actor may have under way: it only waits, for its threads or its event loop."""
_PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0)
"""Seconds before a dead actor is looked for again: by its name Ray may still give the dead one."""


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
        self._lock = threading.Lock()

    async def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the actor on this node.

        Raises:
            VideoError: The method returned one: errors travel as values, because Ray wraps those that are raised.
        """
        import ray

        for pause in (*_PAUSES, None):
            handle = await self._found()
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

    async def _found(self) -> Any:
        # Ray looks an actor up with a call that blocks: not on an event loop.
        return self._handle if self._handle is not None else await asyncio.to_thread(lambda: self.handle)

    def forget(self, handle: Any) -> None:
        """Look for the actor anew at the next call: the one of this handle has died. Others may have done so before."""
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
    """The id of the Ray node that this process runs on."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def actor_of(prefix: str, node: str) -> Any | None:
    """The handle of a node's actor; None where it has none, or the node is gone."""
    import ray

    try:
        return ray.get_actor(f"{prefix}-{node}")
    except ValueError:
        return None


def call_all(prefix: str, method: str) -> list[Any]:
    """Call a method of every node's actor that exists; for a driver's log.

    Args:
        prefix: Start of the actors' names, as for :class:`NodeActor`.
        method: Name of a method without arguments.

    Returns:
        One answer per node that has the actor; one that has just died is left out.
    """
    import ray

    found = [actor_of(prefix, node["NodeID"]) for node in ray.nodes()]  # None: no episode ran on that node
    answers = []
    for asked in [getattr(handle, method).remote() for handle in found if handle is not None]:
        with contextlib.suppress(ray.exceptions.RayActorError):
            answers.append(ray.get(asked))
    return answers
