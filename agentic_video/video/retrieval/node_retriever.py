"""The frame retriever of a node, an actor like its frame store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agentic_video.video.errors import VideoError
from agentic_video.video.node_store import NodeActor, NodeFrameStore, call_all
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.retrieval.encoder import ClipEncoder
from agentic_video.video.retrieval.retriever import FrameRetriever, RetrievalStats, check_compared
from agentic_video.video.store_config import StoreConfig

Similarities = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
"""To a prompt (n,) and to each other (n, n); see :meth:`FrameRetriever.acompare`."""

_PREFIX = "agentic-video-retrieval"
_KEEP_VISIBLE = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}


class _RetrieverActor:
    """A FrameRetriever on its node's frame store; its errors travel as values."""

    def __init__(self, config: RetrievalConfig, store: StoreConfig) -> None:
        import torch

        # Ray's own default for an actor without CPUs is one thread.
        torch.set_num_threads(config.threads)
        self._retriever = FrameRetriever(NodeFrameStore(store), ClipEncoder(config), config)

    async def ready(self) -> bool:
        return True

    async def ask(self, method: str, path: str, indices: Sequence[int], prompt: str) -> Any:
        try:
            return await getattr(self._retriever, method)(path, indices, prompt)
        except VideoError as error:
            return error.bare()

    async def stats(self) -> RetrievalStats:
        return self._retriever.stats()


class NodeRetriever:
    """A client of the retriever on the caller's own node; a Retriever.

    Cheap to make and to pickle, as NodeFrameStore. The first client on a node decides the configuration. Each call
    raises RuntimeError if the node's retriever doesn't start in time.
    """

    def __init__(self, config: RetrievalConfig, store: StoreConfig | None = None) -> None:
        self._config, self._store = config, store or StoreConfig()
        self._actor = NodeActor(_PREFIX, _RetrieverActor, [self._config, self._store], actor_options(config))
        self._ready = False

    def __reduce__(self) -> tuple[type[NodeRetriever], tuple[RetrievalConfig, StoreConfig]]:
        return NodeRetriever, (self._config, self._store)

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        return await self._ask("asimilarities", path, indices, prompt)

    async def acompare(self, path: str, indices: Sequence[int], prompt: str) -> Similarities:
        """See :meth:`FrameRetriever.acompare`; no embedding leaves the node's retriever."""
        check_compared(indices)
        return await self._ask("acompare", path, indices, prompt)

    async def stats(self) -> RetrievalStats:
        """Counts of the node's retriever so far."""
        await self._start()
        return await self._actor.call("stats")

    async def _ask(self, method: str, path: str, indices: Sequence[int], prompt: str) -> Any:
        await self._start()
        numbers = [int(index) for index in indices]
        return await self._actor.call("ask", method, path, numbers, prompt[: self._config.max_prompt_chars])

    async def _start(self) -> None:
        """Wait, once, for the node's retriever to load its model."""
        if self._ready:
            return
        try:
            await asyncio.wait_for(self._actor.call("ready"), self._config.start_seconds)
        except TimeoutError as error:
            cause = (
                f"no GPU of this node may have {self._config.num_gpus:g} left (verl reserves its own whole): set "
                "agentic_video.retrieval.num_gpus=0, or lower trainer.n_gpus_per_node"
                if self._config.num_gpus
                else "is its model still being loaded or downloaded?"
            )
            raise RuntimeError(
                f"the retriever of this node didn't start within {self._config.start_seconds:g} s: {cause}"
            ) from error
        self._ready = True


def actor_options(config: RetrievalConfig) -> dict[str, Any]:
    """Ray's options for the retriever of a node.

    An actor without a share of a GPU sees none under older versions of Ray and all of its node's under newer ones. Here
    it always sees them.
    """
    if config.num_gpus:
        return {"num_gpus": config.num_gpus}
    if config.device == "cpu":
        return {"num_gpus": 0}
    return {"num_gpus": 0, "runtime_env": {"env_vars": _KEEP_VISIBLE}}


def all_retrieval_stats() -> list[RetrievalStats]:
    """Counts of every node's retriever; for a driver's log."""
    return call_all(_PREFIX, "stats")
