"""Images by their references, from the frame store of the node that has them.

A reference outlives the frame that it was made of: what a store has dropped it decodes again, and what a lost node had
is decoded by the store of this node.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from agentic_video.types.frame import ImageRef, Origin
from agentic_video.video.errors import Reason, VideoError
from agentic_video.video.lru import BoundedCache
from agentic_video.video.node_actor import NodeActor, actor_of, node_id
from agentic_video.video.node_store import STORE_PREFIX, StoreActor
from agentic_video.video.source import Served
from agentic_video.video.store import StoreConfig

logger = logging.getLogger(__name__)

PAUSES = (1.0, 5.0, 15.0, 30.0, 60.0)
"""Seconds between the tries of :meth:`FrameFetcher.fetch`. With the store's own time limit for each try they stay far
below what the other ranks wait for (:data:`agentic_video.training.seams.patches.PATIENCE_SECONDS`)."""
_PASSING: frozenset[Reason] = frozenset({"timeout", "machine"})


@dataclass(frozen=True)
class FetchStats:
    """What a fetcher has done so far.

    Attributes:
        asked: Distinct images that it was asked for, call by call.
        fetched: Those that came from a store; the others were kept from an earlier call, or came with their pixels.
        bytes: Bytes of those that came from a store.
        redone: Those that another node's store should have had, and this node's gave.
    """

    asked: int = 0
    fetched: int = 0
    bytes: int = 0
    redone: int = 0


@dataclass(frozen=True)
class _Ask:
    """One call of a store: images of one video in one size."""

    node: str
    video: str
    size: tuple[int, int] | None
    refs: tuple[ImageRef, ...]

    @property
    def indices(self) -> list[int]:
        return [_origin(ref).index for ref in self.refs]


class FrameFetcher:
    """Finds the pixels of references, each distinct image once a call; keeps the latest.

    Args:
        config: Of this node's store, should it be the first to be asked.
        max_bytes: Most bytes of images that are kept from call to call.
        pauses: Seconds between the tries of :meth:`fetch`, of which there is one more.
    """

    def __init__(self, config: StoreConfig | None = None, max_bytes: int = 0, pauses: Sequence[float] = PAUSES):
        self._own = NodeActor(STORE_PREFIX, StoreActor, [config or StoreConfig()])
        self._kept: BoundedCache[str, np.ndarray] = BoundedCache(max_bytes, lambda image: image.nbytes)
        self._pauses = tuple(pauses)
        self._others: dict[str, Any] = {}  # handles by node: Ray looks one up with a call that blocks an event loop
        self.stats = FetchStats()

    def fetch(self, refs: Iterable[ImageRef]) -> dict[str, np.ndarray]:
        """The images of references, by their keys.

        In a rollout a store that is slow costs one group; here, in training, it would end the run. What passes (time
        is up, the machine lacks something) is asked for again, several times; a store keeps what it has decoded.

        Returns:
            RGB uint8 arrays of shape (height, width, 3), read-only where they lie in Ray's shared memory.

        Raises:
            VideoError: A frame can't be had again, or its video isn't the one that it was.
        """
        found, asks = self._plan(refs)
        pauses = iter(self._pauses)
        while asks:
            passing: list[tuple[_Ask, VideoError]] = []
            for ask, answer in self._answers(asks):
                if isinstance(answer, VideoError) and answer.reason in _PASSING:
                    passing.append((ask, answer))
                else:
                    found |= self._take(ask, answer)
            asks = [ask for ask, _ in passing]
            if passing:
                pause = next(pauses, None)
                if pause is None:
                    raise passing[0][1]
                for _, error in passing:
                    logger.warning("frames are asked for again in %g s: %s", pause, error)
                time.sleep(pause)
        return found

    def _answers(self, asks: Sequence[_Ask]) -> Iterator[tuple[_Ask, Served | VideoError]]:
        """What stores say, all asked at once; in place of one that is gone this node's."""
        import ray

        calls = [(ask, handle, self._call(handle, ask)) for ask, handle in ((ask, self._store(ask)) for ask in asks)]
        again: list[_Ask] = []
        for ask, handle, call in calls:
            try:
                answer = ray.get(call)
            except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
                again.append(self._redo(ask, handle, error))
            else:
                yield ask, answer
        for ask in again:
            yield ask, ray.get(self._call(self._own.handle, ask))

    async def afetch(self, refs: Iterable[ImageRef]) -> dict[str, np.ndarray]:
        """As :meth:`fetch`, on an event loop, and in one try."""
        found, asks = self._plan(refs)
        for part in await asyncio.gather(*(self._ask(ask) for ask in asks)):
            found |= part
        return found

    async def _ask(self, ask: _Ask) -> dict[str, np.ndarray]:
        import ray

        handle = self._store(ask)
        try:
            answer = await self._call(handle, ask)
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
            ask = self._redo(ask, handle, error)
            answer = await self._call(self._own.handle, ask)
        return self._take(ask, answer)

    def _plan(self, refs: Iterable[ImageRef]) -> tuple[dict[str, np.ndarray], list[_Ask]]:
        """What is at hand, and the calls that give the rest."""
        distinct = {ref.key: ref for ref in refs}
        found: dict[str, np.ndarray] = {}
        missing: list[ImageRef] = []
        for key, ref in distinct.items():
            kept = ref.image if ref.image is not None else self._kept.get(key)
            if kept is not None:
                found[key] = kept
            else:
                missing.append(ref)
        self._count(asked=len(distinct))
        return found, _asks(missing)

    def _store(self, ask: _Ask) -> Any:
        """The handle of the store to ask: that of the node that is named, or where there is none, of this one."""
        if not ask.node or ask.node == node_id():
            return self._own.handle
        if ask.node not in self._others and (handle := actor_of(STORE_PREFIX, ask.node)):
            self._others[ask.node] = handle
        return self._others.get(ask.node) or self._own.handle

    def _call(self, handle: Any, ask: _Ask) -> Any:
        """The answer to come."""
        return handle.serve.remote(ask.video, ask.indices, ask.size)

    def _take(self, ask: _Ask, answer: Served | VideoError) -> dict[str, np.ndarray]:
        if isinstance(answer, VideoError):
            raise answer
        images: dict[str, np.ndarray] = {}
        for ref, frame in zip(ask.refs, answer.frames, strict=True):
            if frame.key != ref.key:
                raise VideoError(
                    ask.video,
                    "changed",
                    f"frame {frame.index} isn't the one that an episode was shown: leave the files of videos as they "
                    "are while a run lasts, and the same on every node",
                )
            images[ref.key] = self._kept[ref.key] = frame.image
        self._count(fetched=len(images), bytes=sum(image.nbytes for image in images.values()))
        return images

    def _redo(self, ask: _Ask, handle: Any, error: Exception) -> _Ask:
        """The same of this node's store."""
        logger.warning("frames of %s are had anew: %s: %s", ask.video, type(error).__name__, error)
        self._own.forget(handle)
        self._others.pop(ask.node, None)
        self._count(redone=len(ask.refs))
        return _Ask("", ask.video, ask.size, ask.refs)

    def _count(self, **more: int) -> None:
        now: Mapping[str, int] = vars(self.stats)
        self.stats = FetchStats(**{name: value + more.get(name, 0) for name, value in now.items()})


def _origin(ref: ImageRef) -> Origin:
    if ref.origin is None:
        raise ValueError(f"image {ref.key} has neither pixels nor a video to find them in")
    return ref.origin


def _asks(refs: Sequence[ImageRef]) -> list[_Ask]:
    """References grouped into calls."""

    def whose(ref: ImageRef) -> tuple[str, str, tuple[int, int]]:
        return ref.node, _origin(ref).video, _origin(ref).size or (0, 0)

    asks = []
    for (node, video, size), some in groupby(sorted(refs, key=whose), whose):
        asks.append(_Ask(node, video, size if any(size) else None, tuple(some)))
    return asks
