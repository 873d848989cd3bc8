"""Images and clips that a vLLM engine gets by reference: the pixels of each are sent once, later its key only.

vLLM's own cache of processed images (``multimodal/cache.py``) tells what the engine has; the rest comes with the
request, or from the frame store, and vLLM's renderer processes it in its own thread. vLLM keeps that cache twice, keys
in this process and patches in the engine's, which must see the same images in the same order, and doesn't ensure it: a
cancelled request leaves an image that only one side knows of. Here a lock is held from the look into the cache until
the request is handed over, and while both sides are emptied.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from PIL import Image

from agentic_video.families.base import clip_frames
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.rollout.vllm_prompts import CACHED, clip_item, whole_prompt, with_bare_clips
from agentic_video.training.inputs.references import image_refs
from agentic_video.types.frame import ImageRef, VideoRef

logger = logging.getLogger(__name__)

MISSING_IMAGES = "missing_images"
"""A server's ``stop_reason`` for a request with images that it neither has nor can find."""
MISSING = "missing"
"""In such an answer's ``extra_fields``: the keys of these images."""


class MissingImages(Exception):
    """A request names images that a tool made and the engine doesn't have, by their keys."""

    def __init__(self, keys: Sequence[str]):
        super().__init__(f"{len(keys)} images without pixels aren't there any more")
        self.keys = tuple(keys)


class RenderedPromptError(ValueError):
    """vLLM's ids of a prompt differ from the rollout's: another sequence would be trained on than was generated."""


class _RenderError(Exception):
    """vLLM couldn't process a prompt's images; its cache may be too small to hold all of them."""

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
    """Counts of an engine's images and clips so far."""

    requests: int = 0  # with images or clips
    asked: int = 0  # images and clips of these requests
    fetched: int = 0  # images from a frame store
    received: int = 0  # images whose pixels came with a request
    processed: int = 0  # images and clips that vLLM's processor ran on; all others were cached
    again: int = 0  # of them, since the cache was last emptied: mm_processor_cache_gb is too small for the requests
    missing: int = 0  # images that had to be asked for
    bytes_fetched: int = 0
    bytes_received: int = 0
    seconds: float = 0.0  # from a request's arrival until its images were ready, summed over requests that overlap
    resets: int = 0  # of the cache


class ReferenceEngine:
    """vLLM's ``AsyncLLM``, whose prompts may hold image references; without ``chat_format`` it takes no clips."""

    def __init__(self, engine: Any, fetcher: Fetcher, chat_format: ChatFormat | None = None):
        self._engine, self._fetcher, self._format = engine, fetcher, chat_format
        self._order = asyncio.Lock()
        self._differ = False  # one side of the cache may know of an image that the other doesn't
        self._coming: dict[str, asyncio.Task[dict[str, np.ndarray]]] = {}
        self._processed: set[str] = set()
        self.stats = ImageStats()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, prompt: Any, sampling_params: Any, request_id: str, **options: Any) -> AsyncIterator[Any]:
        """See ``AsyncLLM.generate``; MissingImages if it lacks pictures of tools that came without pixels."""
        refs = references(prompt)
        if not refs:
            if isinstance(prompt, Mapping) and prompt.get("multi_modal_data"):
                # vLLM processes it on this thread; its own may not use the cache meanwhile.
                async with self._order:
                    pass
            async for output in self._engine.generate(prompt, sampling_params, request_id, **options):
                yield output
            return
        if self._format is not None:
            for ref in refs:
                self._format.rules.require_kept(ref.width, ref.height, clip_frames(ref))
        images = {ref.key: ref.image for ref in image_refs(refs) if ref.image is not None}
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
        """See ``AsyncLLM.reset_mm_cache``; no request is on its way from one side to the other."""
        async with self._order:
            await self._reset()

    async def pause_generation(self, **options: Any) -> None:
        """See ``AsyncLLM.pause_generation``, which may empty the cache."""
        async with self._order:
            self._forget()
            await self._engine.pause_generation(**options)

    async def sleep(self, *args: Any, **options: Any) -> None:
        """See ``AsyncLLM.sleep``, which may empty the cache."""
        async with self._order:
            self._forget()
            await self._engine.sleep(*args, **options)

    async def _render(
        self, prompt: Mapping[str, Any], refs: Sequence[ImageRef | VideoRef], images: Mapping[str, np.ndarray]
    ) -> Any:
        """The prompt as vLLM's engine takes it, with the patches of what it lacks."""
        started, pixels = time.monotonic(), dict(images)
        mine: list[str] = []
        try:
            while True:
                new = image_refs([ref for ref in refs if not self._has(ref.key)])
                lacking = {image.key: image for image in new if image.key not in pixels}
                pixels |= await self._pixels(list(lacking.values()), mine)
                async with self._order:
                    if self._differ:
                        await self._reset()
                    # Something may have been dropped while this request waited.
                    new = image_refs([ref for ref in refs if not self._has(ref.key)])
                    if all(image.key in pixels for image in new):
                        return await self._processed_by_vllm(prompt, refs, pixels)
        finally:
            for key in mine:
                del self._coming[key]
            self._count(seconds=time.monotonic() - started)

    async def _pixels(self, refs: Sequence[ImageRef], mine: list[str]) -> dict[str, np.ndarray]:
        """The pixels of references, each fetched by the first request that wants it."""
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
        # Shielded: a cancelled request doesn't take it away from the others.
        return {key: (await asyncio.shield(task))[key] for key, task in tasks.items()}

    async def _fetch(self, refs: Sequence[ImageRef]) -> dict[str, np.ndarray]:
        found = await self._fetcher.afetch(refs)
        self._count(fetched=len(found), bytes_fetched=sum(image.nbytes for image in found.values()))
        return found

    async def _processed_by_vllm(
        self, prompt: Mapping[str, Any], refs: Sequence[ImageRef | VideoRef], pixels: Mapping[str, np.ndarray]
    ) -> Any:
        held = {ref.key for ref in refs if self._has(ref.key)}
        new = {ref.key for ref in refs} - held
        self._count(processed=sum(ref.key in new for ref in refs), again=len(new & self._processed))
        data = await asyncio.to_thread(_items, refs, held, pixels) if new else _items(refs, held, pixels)
        clips = [ref for ref in refs if isinstance(ref, VideoRef)]
        ids = prompt["prompt_token_ids"]
        named = {
            **prompt,
            "prompt_token_ids": with_bare_clips(ids, clips, self._clip_format) if clips else ids,
            "multi_modal_data": {**prompt["multi_modal_data"], **data},
            "multi_modal_uuids": {
                kind: [ref.key for ref in refs if isinstance(ref, VideoRef) == (kind == "video")] for kind in data
            },
        }
        try:
            (rendered,) = await self._engine.renderer.render_cmpl_async([named])
        except BaseException as error:
            # Its thread may continue, and tell this side of the cache only.
            self._differ = True
            if isinstance(error, Exception):
                raise _RenderError(error) from error
            raise
        self._processed |= new
        if self._format is not None:
            expected = whole_prompt(ids, refs, self._format)
            if list(rendered["prompt_token_ids"]) != expected:
                self._differ = True  # what it has processed doesn't reach the engine
                raise RenderedPromptError(
                    f"vLLM made {len(rendered['prompt_token_ids'])} ids of a prompt with {len(clips)} clips and "
                    f"{len(refs) - len(clips)} images, the rollout has {len(expected)}, or they differ: the engine's "
                    "processors (mm_processor_kwargs, the checkpoint's preprocessor files) aren't the trainer's"
                )
        return rendered

    @property
    def _clip_format(self) -> ChatFormat:
        if self._format is None:
            raise ValueError("this engine is shown no clips: its model has no processor for them")
        return self._format

    def _has(self, key: str) -> bool:
        """Whether the engine has an image or a clip processed."""
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


def references(prompt: Any) -> list[ImageRef | VideoRef]:
    """A prompt's references to images, then to clips; empty where it has none, or pixels themselves."""
    data = prompt.get("multi_modal_data") if isinstance(prompt, Mapping) else None
    given = [(data or {}).get(kind) for kind in ("image", "video")]
    items = [item for some in given if isinstance(some, Sequence) for item in some]
    found = [item for item in items if isinstance(item, ImageRef | VideoRef)]
    if found and len(found) < len(items):
        raise ValueError(f"{len(found)} of a prompt's {len(items)} images are references: it must be all or none")
    return found


def _items(
    refs: Sequence[ImageRef | VideoRef], held: Collection[str], pixels: Mapping[str, np.ndarray]
) -> dict[str, list[Any]]:
    """Images and clips for vLLM's parser, with stand-ins for those that it has."""
    images: list[Any] = []
    clips: list[Any] = []
    for ref in refs:
        if isinstance(ref, VideoRef):
            clips.append(
                CACHED if ref.key in held else clip_item([pixels[frame.key] for frame in ref.frames], ref.times)
            )
        else:
            images.append(None if ref.key in held else Image.fromarray(pixels[ref.key]))
    return {kind: items for kind, items in (("image", images), ("video", clips)) if items}


def _failed(output: Any) -> bool:
    """Return True if the engine refused a request, as it does when it lacks an image."""
    ends = output.outputs
    return bool(output.finished and ends and ends[0].finish_reason == "error" and not ends[0].token_ids)
