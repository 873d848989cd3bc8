"""Images that a vLLM engine is given by reference: it is sent the pixels of each once, later requests name it only.

What the engine has is read from vLLM's own cache of processed images (``multimodal/cache.py``), each time anew, so that
nothing here can be out of date. What it lacks comes with the request, or from the frame store that has it. vLLM's
renderer then processes it in its own thread, not on the server's event loop, where a stock server does it.

vLLM keeps that cache twice: this process knows the keys, the engine's process has the patches, and both must see the
same images in the same order. vLLM has nothing that makes sure of it: its own OpenAI server counts on its renderer's
single thread and on the event loop's order, a cancelled request leaves an image that only one side knows of, and its
``reset_mm_cache`` warns of requests under way. Here one lock is held from the look into the cache until the request is
handed over, and while both sides are emptied.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from PIL import Image

from agentic_video.types.frame import ImageRef

logger = logging.getLogger(__name__)

MISSING_IMAGES = "missing_images"
"""A server's ``stop_reason`` for a request with images that it neither has nor can find."""
MISSING = "missing"
"""In such an answer's ``extra_fields``: the keys of these images."""


class MissingImages(Exception):
    """A request names images that a tool made, and the engine doesn't have them.

    Attributes:
        keys: Of these images.
    """

    def __init__(self, keys: Sequence[str]):
        super().__init__(f"{len(keys)} images without pixels aren't there any more")
        self.keys = tuple(keys)


class _RenderError(Exception):
    """vLLM couldn't process a prompt's images, be it that its cache is too small to hold all of them."""

    def __init__(self, cause: Exception):
        super().__init__(str(cause))
        self.cause = cause


class Fetcher(Protocol):
    """Finds pixels, as :class:`agentic_video.video.fetch.FrameFetcher` does."""

    async def afetch(self, refs: Iterable[ImageRef]) -> dict[str, np.ndarray]:
        """RGB uint8 arrays of shape (height, width, 3) by key."""
        ...


@dataclass(frozen=True)
class ImageStats:
    """What an engine was asked to look at so far, and what had to be moved for it.

    Attributes:
        requests: Requests with images.
        asked: Images of these requests.
        fetched: Images that were fetched from a frame store.
        received: Images whose pixels came with a request.
        processed: Images that vLLM's processor ran on; all others were at hand.
        again: Those of them that had been processed since the cache was last emptied: it is too small for what is
            under way (``mm_processor_cache_gb``).
        missing: Images that had to be asked for.
        bytes_fetched: Bytes of those that were fetched.
        bytes_received: Bytes of those that came with a request.
        seconds: From a request's arrival until its images were ready, added up over requests that overlap.
        resets: How often the cache was emptied.
    """

    requests: int = 0
    asked: int = 0
    fetched: int = 0
    received: int = 0
    processed: int = 0
    again: int = 0
    missing: int = 0
    bytes_fetched: int = 0
    bytes_received: int = 0
    seconds: float = 0.0
    resets: int = 0


class ReferenceEngine:
    """vLLM's engine, whose prompts may hold image references; all else is its own.

    Args:
        engine: vLLM's ``AsyncLLM``.
        fetcher: Finds the frames of stores.

    Attributes:
        stats: The counts so far.
    """

    def __init__(self, engine: Any, fetcher: Fetcher):
        self._engine, self._fetcher = engine, fetcher
        self._order = asyncio.Lock()
        # Whether one side of the cache may know of an image that the other doesn't.
        self._differ = False
        # Fetches of frames that aren't processed yet.
        self._coming: dict[str, asyncio.Task[dict[str, np.ndarray]]] = {}
        self._processed: set[str] = set()
        self.stats = ImageStats()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, prompt: Any, sampling_params: Any, request_id: str, **options: Any) -> AsyncIterator[Any]:
        """As ``AsyncLLM.generate``.

        Raises:
            MissingImages: Of images that tools made, the engine lacks some that came without pixels.
            VideoError: A frame can't be had again.
        """
        refs = references(prompt)
        if not refs:
            if isinstance(prompt, Mapping) and prompt.get("multi_modal_data"):
                # vLLM processes it here and now; its thread mustn't use the cache meanwhile.
                async with self._order:
                    pass
            async for output in self._engine.generate(prompt, sampling_params, request_id, **options):
                yield output
            return
        images = {ref.key: ref.image for ref in refs if ref.image is not None}
        self._count(
            requests=1,
            asked=len(refs),
            received=len(images),
            bytes_received=sum(image.nbytes for image in images.values()),
        )
        for retry in (True, False):
            try:
                rendered = await self._render(prompt, refs, images)
            except _RenderError as error:
                if retry:
                    continue
                raise error.cause from error
            # No await in between: the generator's first step hands the request to the engine's queue before anyone else
            # gets the lock.
            lost = False
            try:
                async for output in self._engine.generate(rendered, sampling_params, request_id, **options):
                    lost = retry and _failed(output)
                    if not lost:
                        yield output
            except Exception:
                # It may have been refused after its images were processed: then the engine has never seen them.
                self._differ = True
                raise
            if not lost:
                return
            self._differ = True
            logger.warning("request %s is sent again with all its images: the engine refused it", request_id)

    async def reset_mm_cache(self) -> None:
        """As ``AsyncLLM.reset_mm_cache``, with no request on its way from one side to the other."""
        async with self._order:
            await self._reset()

    async def pause_generation(self, **options: Any) -> None:
        """As ``AsyncLLM.pause_generation``, which may empty the cache."""
        async with self._order:
            self._forget()
            await self._engine.pause_generation(**options)

    async def sleep(self, *args: Any, **options: Any) -> None:
        """As ``AsyncLLM.sleep``, which may empty the cache."""
        async with self._order:
            self._forget()
            await self._engine.sleep(*args, **options)

    async def _render(
        self, prompt: Mapping[str, Any], refs: Sequence[ImageRef], images: Mapping[str, np.ndarray]
    ) -> Any:
        """The prompt as vLLM's engine takes it, with the patches of what it lacks."""
        started, pixels = time.monotonic(), dict(images)
        mine: list[str] = []
        try:
            while True:
                lacking = {ref.key: ref for ref in refs if ref.key not in pixels and not self._has(ref.key)}
                pixels |= await self._pixels(list(lacking.values()), mine)
                async with self._order:
                    if self._differ:
                        await self._reset()
                    # Something may have been dropped while this request waited.
                    if all(ref.key in pixels or self._has(ref.key) for ref in refs):
                        return await self._processed_by_vllm(prompt, refs, pixels)
        finally:
            for key in mine:
                del self._coming[key]
            self._count(seconds=time.monotonic() - started)

    async def _pixels(self, refs: Sequence[ImageRef], mine: list[str]) -> dict[str, np.ndarray]:
        """The pixels of references, each fetched by the first request that wants it.

        Args:
            refs: Of what the engine lacks.
            mine: Gets the keys that the caller fetches for all who want them until it has had them processed.
        """
        fresh = [ref for ref in refs if ref.key not in self._coming]
        missing = [ref.key for ref in fresh if ref.origin is None]
        if missing:
            self._count(missing=len(missing))
            raise MissingImages(missing)
        if fresh:
            task = asyncio.create_task(self._fetch(fresh))
            self._coming |= dict.fromkeys((ref.key for ref in fresh), task)
            mine += [ref.key for ref in fresh]
        tasks = {ref.key: self._coming[ref.key] for ref in refs}
        # Shielded: who gives up doesn't take it away from the others.
        return {key: (await asyncio.shield(task))[key] for key, task in tasks.items()}

    async def _fetch(self, refs: Sequence[ImageRef]) -> dict[str, np.ndarray]:
        found = await self._fetcher.afetch(refs)
        self._count(fetched=len(found), bytes_fetched=sum(image.nbytes for image in found.values()))
        return found

    async def _processed_by_vllm(
        self, prompt: Mapping[str, Any], refs: Sequence[ImageRef], pixels: Mapping[str, np.ndarray]
    ) -> Any:
        new = [None if self._has(ref.key) else pixels[ref.key] for ref in refs]
        keys = {ref.key for ref, image in zip(refs, new, strict=True) if image is not None}
        self._count(processed=sum(image is not None for image in new), again=len(keys & self._processed))
        images = await asyncio.to_thread(_pictures, new) if keys else new
        named = {
            **prompt,
            "multi_modal_data": {**prompt["multi_modal_data"], "image": images},
            "multi_modal_uuids": {"image": [ref.key for ref in refs]},
        }
        try:
            (rendered,) = await self._engine.renderer.render_cmpl_async([named])
        except BaseException as error:
            # Its thread may go on, and tell this side of the cache only.
            self._differ = True
            if isinstance(error, Exception):
                raise _RenderError(error) from error
            raise
        self._processed |= keys
        return rendered

    def _has(self, key: str) -> bool:
        """Whether the engine has an image processed."""
        cache = self._engine.renderer.mm_processor_cache
        return cache is not None and bool(cache.is_cached_item(key))

    async def _reset(self) -> None:
        self._forget()
        await self._engine.reset_mm_cache()
        self._differ = False

    def _forget(self) -> None:
        self._processed.clear()
        self._count(resets=1)

    def _count(self, **more: float) -> None:
        now: Mapping[str, Any] = vars(self.stats)
        self.stats = ImageStats(**{name: value + more.get(name, 0) for name, value in now.items()})


def references(prompt: Any) -> list[ImageRef]:
    """A prompt's images where they are references; empty where there are none, or images themselves.

    Raises:
        ValueError: Some are and some aren't.
    """
    data = prompt.get("multi_modal_data") if isinstance(prompt, Mapping) else None
    images = (data or {}).get("image")
    if not isinstance(images, Sequence):
        return []
    found = [image for image in images if isinstance(image, ImageRef)]
    if found and len(found) < len(images):
        raise ValueError(f"{len(found)} of a prompt's {len(images)} images are references: it must be all or none")
    return found


def _pictures(images: Sequence[np.ndarray | None]) -> list[Image.Image | None]:
    return [None if image is None else Image.fromarray(image) for image in images]


def _failed(output: Any) -> bool:
    """Whether an engine refused a request, as it does when it lacks an image."""
    ends = output.outputs
    return bool(output.finished and ends and ends[0].finish_reason == "error" and not ends[0].token_ids)
