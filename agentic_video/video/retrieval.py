"""Finding frames by text: similarities of a video's frames and a prompt under a CLIP-like model.

Importing this touches neither the network nor a model library; :class:`ClipEncoder` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from agentic_video.video.reader import VideoError, raise_video_error
from agentic_video.video.store import FrameSource, SizedLRU

T = TypeVar("T")
Row = npt.NDArray[np.float32]
"""The embedding of one frame or text: shape (dim,), length 1."""

_LOG = logging.getLogger(__name__)
_DEVICES = re.compile(r"auto|cpu|cuda(:\d+)?")
_SCHEMAS = ("local-dir:", "hf-hub:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_CHUNK_BYTES = 32 * 2**20
"""Most bytes of frames in one request to the frame source."""
_CHUNKS = 8
"""Requests to the frame source at a time, over all rollouts: bounds the frames that wait to be embedded."""
_TOKENIZER_WORDS = 2**16
_SWEEP_SECONDS = 60.0
_SWEEP_TO = 0.9
"""Share of its bound that a folder which outgrew it is brought back to, so that not every write has to look again."""


@dataclass(frozen=True)
class RetrievalConfig:
    """Which model compares frames with texts, where it runs, and what it may keep.

    Attributes:
        model: Model by its open_clip name, or ``local-dir:/path`` (a folder with ``open_clip_config.json`` and weights,
            nothing is downloaded), or ``hf-hub:owner/name``; empty for no retrieval.
        pretrained: Tag or checkpoint file of a model that is given by name; empty for the other two.
        device: ``auto`` (CUDA where there is a visible device, else the CPU), ``cpu``, ``cuda`` or ``cuda:N``.
        num_gpus: Share of a GPU that Ray sets aside for the retriever of each node. 0 takes none: the retriever shares
            a GPU with whatever runs there. verl reserves all of its GPUs whole, so more than 0 needs a GPU on each node
            beyond ``trainer.n_gpus_per_node``.
        threads: CPU threads of a forward pass.
        batch_size: Most frames, or texts, in a forward pass.
        wait_ms: Milliseconds that a batch which isn't full waits for other rollouts' requests.
        max_bytes: Most bytes of frame embeddings kept in memory.
        max_texts: Most text embeddings kept in memory.
        cache_dir: Folder that keeps frame embeddings between runs; several nodes may share it. Empty keeps none.
        cache_bytes: Most bytes of that folder; the files that were used longest ago go first.
        max_prompt_chars: Characters of a prompt that count; the rest is cut (a text tower reads 64 or 77 tokens).
        start_seconds: Seconds that the retriever of a node may take to start, loading the model included.

    Raises:
        ValueError: On values that make no retriever.
    """

    model: str = ""
    pretrained: str = ""
    device: str = "auto"
    num_gpus: float = 0.0
    threads: int = 2
    batch_size: int = 32
    wait_ms: float = 5.0
    max_bytes: int = 256 * 2**20
    max_texts: int = 4096
    cache_dir: str = ""
    cache_bytes: int = 10 * 2**30
    max_prompt_chars: int = 256
    start_seconds: float = 600.0

    def __post_init__(self) -> None:
        if self.model.startswith(_SCHEMAS) and self.pretrained:
            raise ValueError(f"pretrained must be empty: {self.model} has its own weights")
        if self.model and not self.model.startswith(_SCHEMAS) and not self.pretrained:
            raise ValueError(f"model {self.model} needs pretrained: a tag of open_clip or a checkpoint file")
        if not _DEVICES.fullmatch(self.device):
            raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {self.device!r}")
        if not self.num_gpus >= 0:
            raise ValueError(f"num_gpus must not be negative, got {self.num_gpus}")
        if self.num_gpus and self.device == "cpu":
            raise ValueError(f"num_gpus must be 0 with device cpu, got {self.num_gpus}")
        for name in ("threads", "batch_size", "max_prompt_chars"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("wait_ms", "max_bytes", "max_texts", "cache_bytes"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if not self.start_seconds > 0:
            raise ValueError(f"start_seconds must be positive, got {self.start_seconds}")


@dataclass(frozen=True)
class RetrievalStats:
    """What a retriever has done so far.

    Attributes:
        asked: Frames asked for, duplicates included.
        embedded: Frames embedded.
        hits: Frames found in memory or under way for another request.
        disk_hits: Frames found in the disk cache.
        disk_errors: Files of the disk cache that could not be read or written.
        texts: Texts embedded.
        batches: Forward passes, of frames or texts.
        seconds: Seconds spent in them.
        bytes: Bytes of frame embeddings held now.
    """

    asked: int
    embedded: int
    hits: int
    disk_hits: int
    disk_errors: int
    texts: int
    batches: int
    seconds: float
    bytes: int


@dataclass(frozen=True)
class VideoIdentity:
    """A video file as it is now: a changed file is another one."""

    path: str
    mtime_ns: int
    size: int


def identify(path: str) -> VideoIdentity:
    """The identity of a file.

    Raises:
        VideoError: It can't be found.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise_video_error(path, error)
    return VideoIdentity(path, status.st_mtime_ns, status.st_size)


def clean_prompt(prompt: str, max_chars: int) -> str:
    """What of a prompt is embedded: its first characters, those that no tokenizer takes replaced by spaces."""
    return " ".join(_CONTROL.sub(" ", prompt[:max_chars]).split())


class Encoder(Protocol):
    """Embeds pictures and texts so that a scalar product compares them. Called from one thread at a time."""

    identity: str
    """Changes whenever the embeddings of frames do."""

    def frame_size(self, width: int, height: int) -> tuple[int, int]:
        """The (width, height) in pixels that frames of a video of the given size are wanted in."""
        ...

    def images(self, images: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """Embeds RGB pictures, each (height, width, 3): rows of length 1, shape (len(images), dim)."""
        ...

    def texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embeds texts: rows of length 1, shape (len(texts), dim)."""
        ...


class ClipEncoder:
    """A model of open_clip.

    Args:
        config: Its model, pretrained and device count.

    Raises:
        ValueError: No model is named, or open_clip doesn't know it.
        RuntimeError: Its weights can't be had.
    """

    def __init__(self, config: RetrievalConfig) -> None:
        import open_clip

        if not config.model:
            raise ValueError("no retrieval model is named: set agentic_video.retrieval.model")
        # Refuses a model without weights, which open_clip's other constructors would fill at random.
        network, self._transform = open_clip.create_model_from_pretrained(
            config.model, config.pretrained or None, device="cpu"
        )
        self.identity = _digest(network, self._transform)
        self._tokenizer = open_clip.get_tokenizer(config.model)
        self._device = _device(config.device)
        self._network = network.eval().requires_grad_(False).to(self._device)
        self._sizes: SizedLRU[tuple[int, int], tuple[int, int]] = SizedLRU(1024)

    def frame_size(self, width: int, height: int) -> tuple[int, int]:
        """The size that the model's own transform resizes a picture to, before it crops or pads."""
        from PIL import Image

        size = self._sizes.get((width, height))
        if size is None:
            # The transform itself tells, so that it finds nothing left to resize in frames of that size.
            resized = self._transform.transforms[0](Image.new("L", (width, height)))
            size = (resized.width, resized.height)
            self._sizes.put((width, height), size, 1)
        return size

    def images(self, images: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """As `Encoder.images`, prepared by the model's own transform."""
        import torch
        from PIL import Image

        batch = torch.stack([self._transform(Image.fromarray(image)) for image in images])
        with torch.inference_mode():
            return _rows(self._network.encode_image(batch.to(self._device), normalize=True))

    def texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """As `Encoder.texts`; what goes beyond the text tower's context is cut."""
        import torch

        known = getattr(self._tokenizer, "cache", None)
        if known is not None and len(known) > _TOKENIZER_WORDS:
            # open_clip's own tokenizer remembers every word it ever saw; its special tokens are those that stay whole.
            self._tokenizer.cache = {word: pieces for word, pieces in known.items() if word == pieces}
        tokens = self._tokenizer(list(texts)).to(self._device)
        with torch.inference_mode():
            return _rows(self._network.encode_text(tokens, normalize=True))


def _rows(features: Any) -> npt.NDArray[np.float32]:
    rows: npt.NDArray[np.float32] = features.float().cpu().numpy()
    if not np.isfinite(rows).all():
        raise RuntimeError("the retrieval model gives embeddings that are not finite: its weights are damaged")
    return rows


def _digest(network: Any, transform: Any) -> str:
    """A model's identity: its modules, its weights and how it prepares pictures."""
    import torch

    digest = hashlib.sha256(f"{network!r}{transform!r}".encode())
    for name, tensor in network.state_dict().items():
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _device(name: str) -> str:
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and torch.cuda.is_available():
        # The first one holds what verl's first rank holds beside its share.
        name = f"cuda:{torch.cuda.device_count() - 1}"
    return name


class EmbeddingCache:
    """Frame embeddings of one model: a bounded memory, and a bounded folder with a file for each video.

    `get` and `put` belong to one thread, `load` and `save` to one thread.

    Args:
        config: Its bounds and folder count.
        model: Identity of the model.
    """

    def __init__(self, config: RetrievalConfig, model: str) -> None:
        self._model = model
        self._memory: SizedLRU[tuple[VideoIdentity, int], Row] = SizedLRU(config.max_bytes)
        self._folder = Path(config.cache_dir).expanduser() if config.cache_dir else None
        self._folder_bytes = config.cache_bytes
        # Upper bound of what the folder holds, as far as this process knows.
        self._folder_total = 0
        self._swept = -np.inf
        self.disk_errors = 0

    @property
    def bytes(self) -> int:
        """Bytes held in memory."""
        return self._memory.total

    @property
    def on_disk(self) -> bool:
        """Whether there is a folder."""
        return self._folder is not None

    def get(self, video: VideoIdentity, index: int) -> Row | None:
        """An embedding in memory."""
        return self._memory.get((video, index))

    def put(self, video: VideoIdentity, index: int, row: Row) -> None:
        """Keeps an embedding in memory."""
        self._memory.put((video, index), row, row.nbytes)

    def load(self, video: VideoIdentity, indices: Iterable[int]) -> dict[int, Row]:
        """Those embeddings of a video that its file holds; a damaged file holds none."""
        file = self._file(video)
        if file is None:
            return {}
        stored = self._read(file)
        if stored:
            with contextlib.suppress(OSError):  # gone in favour of others
                os.utime(file)
        return {index: stored[index] for index in indices if index in stored}

    def save(self, video: VideoIdentity, rows: Mapping[int, Row]) -> None:
        """Adds embeddings to a video's file. What can't be written is left out, and counted."""
        file = self._file(video)
        if file is None or not rows:
            return
        merged = {**self._read(file), **rows}
        indices = sorted(merged)
        partial = file.with_name(f"{file.stem}.{uuid.uuid4().hex}.tmp")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as stream:
                np.savez(stream, indices=np.array(indices), rows=np.stack([merged[index] for index in indices]))
            size = partial.stat().st_size
            if size > self._folder_bytes:
                partial.unlink()
                return
            self._folder_total += size
            os.replace(partial, file)
            self._sweep()
        except OSError as error:
            self._failed(f"can't write to {file.parent}: {error}")
            with contextlib.suppress(OSError):
                partial.unlink()

    def _file(self, video: VideoIdentity) -> Path | None:
        if self._folder is None:
            return None
        name = json.dumps([self._model, video.path, video.mtime_ns, video.size])
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()}.npz"

    def _read(self, file: Path) -> dict[int, Row]:
        try:
            with np.load(file, allow_pickle=False) as content:
                indices, rows = content["indices"], content["rows"]
            if indices.dtype != np.int64 or rows.dtype != np.float32 or rows.shape[:1] != indices.shape:
                raise ValueError(f"holds {indices.dtype}{indices.shape} and {rows.dtype}{rows.shape}")
            if rows.ndim != 2 or not (np.abs(np.linalg.norm(rows, axis=1) - 1) < 0.01).all():
                raise ValueError("holds rows that are no embeddings")
        except FileNotFoundError:
            return {}
        except Exception as error:  # a damaged archive can raise nearly anything
            self._failed(f"{file} is damaged and will be made anew: {error}")
            return {}
        return {int(index): row for index, row in zip(indices, rows, strict=True)}

    def _failed(self, message: str) -> None:
        if not self.disk_errors:
            _LOG.warning("cache of frame embeddings: %s (further ones are only counted)", message)
        self.disk_errors += 1

    def _sweep(self) -> None:
        """Brings the folder well within its bound, oldest files first; looks only now and then where there is room."""
        assert self._folder is not None
        now = time.monotonic()
        if now - self._swept < _SWEEP_SECONDS and self._folder_total <= self._folder_bytes:
            return
        files = []
        for file in self._folder.iterdir():
            if file.suffix in (".npz", ".tmp"):
                with contextlib.suppress(FileNotFoundError):  # another process sweeps too
                    status = file.stat()
                    files.append((status.st_mtime_ns, status.st_size, file))
        total = sum(size for _, size, _ in files)
        if total > self._folder_bytes:
            for _, size, file in sorted(files):
                if total <= _SWEEP_TO * self._folder_bytes:
                    break
                file.unlink(missing_ok=True)
                total -= size
        self._folder_total, self._swept = total, now


class _Batcher(Generic[T]):
    """Gathers the items of concurrent requests into batches, embedded one after the other on a thread.

    Belongs to one event loop.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[T]], npt.NDArray[np.float32]],
        size: int,
        wait: float,
        executor: ThreadPoolExecutor,
    ) -> None:
        self._encode, self._size, self._wait, self._executor = encode, size, wait, executor
        self._queue: deque[tuple[T, asyncio.Future[Row]]] = deque()
        self._filled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.items = self.batches = 0
        self.seconds = 0.0

    async def __call__(self, items: Iterable[T]) -> list[Row]:
        loop = asyncio.get_running_loop()
        entries = [(item, loop.create_future()) for item in items]
        self._queue.extend(entries)
        if len(self._queue) >= self._size:
            self._filled.set()
        if self._task is None:
            self._task = loop.create_task(self._run())
        return await asyncio.gather(*(future for _, future in entries))

    async def _run(self) -> None:
        try:
            while self._queue:
                if len(self._queue) < self._size:
                    self._filled.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._filled.wait(), self._wait)
                batch = [self._queue.popleft() for _ in range(min(self._size, len(self._queue)))]
                batch = [(item, future) for item, future in batch if not future.done()]
                if batch:
                    await self._embed(batch)
        finally:
            self._task = None
            while self._queue:  # only when cancelled
                self._queue.popleft()[1].cancel()

    async def _embed(self, batch: list[tuple[T, asyncio.Future[Row]]]) -> None:
        try:
            rows = await asyncio.get_running_loop().run_in_executor(
                self._executor, self._timed, [item for item, _ in batch]
            )
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        self.items += len(batch)
        self.batches += 1
        for (_, future), row in zip(batch, rows, strict=True):
            if not future.done():
                # A copy, because a view would keep the whole batch alive.
                future.set_result(row.copy())

    def _timed(self, items: Sequence[T]) -> npt.NDArray[np.float32]:
        started = time.perf_counter()
        try:
            rows = self._encode(items)
        finally:
            self.seconds += time.perf_counter() - started
        if len(rows) != len(items):
            raise RuntimeError(f"the retrieval model gives {len(rows)} embeddings for {len(items)} items")
        return rows


class FrameRetriever:
    """Compares frames with texts; a Retriever. Belongs to one event loop.

    Each frame of a video is embedded once, however many requests want it at the same time or later (within the bounds
    of its caches). Frames are asked for at the model's input size, a few at a time.

    Args:
        source: Where frames come from.
        encoder: What embeds them.
        config: Batches and caches.
    """

    def __init__(self, source: FrameSource, encoder: Encoder, config: RetrievalConfig) -> None:
        self._source, self._encoder, self._config = source, encoder, config
        self._cache = EmbeddingCache(config, encoder.identity)
        self._compute = ThreadPoolExecutor(1, "retrieval")
        self._disk = ThreadPoolExecutor(1, "retrieval-disk")
        wait = config.wait_ms / 1000
        self._images = _Batcher(encoder.images, config.batch_size, wait, self._compute)
        self._texts = _Batcher(encoder.texts, config.batch_size, wait, self._compute)
        self._known_texts: SizedLRU[str, Row] = SizedLRU(config.max_texts)
        self._pending_texts: dict[str, asyncio.Task[Row]] = {}
        self._pending: dict[tuple[VideoIdentity, int], asyncio.Future[Row]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_CHUNKS)
        self._asked = self._hits = self._disk_hits = 0

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        """Cosine similarity of each frame to a prompt.

        Args:
            path: Video file.
            indices: Frame indices in any order; duplicates are allowed.
            prompt: Any text; characters beyond the config's bound don't count.

        Returns:
            One similarity per index in the asked order, -1 to 1 but for rounding.

        Raises:
            VideoError: A frame can't be read.
        """
        wanted = [int(index) for index in indices]
        if not wanted:
            return []
        self._asked += len(wanted)
        text = await self._text(clean_prompt(prompt, self._config.max_prompt_chars))
        rows = await self._rows(path, wanted)
        similarities: list[float] = (np.stack([rows[index] for index in wanted]) @ text).tolist()
        return similarities

    def stats(self) -> RetrievalStats:
        """Counts so far."""
        return RetrievalStats(
            asked=self._asked,
            embedded=self._images.items,
            hits=self._hits,
            disk_hits=self._disk_hits,
            disk_errors=self._cache.disk_errors,
            texts=self._texts.items,
            batches=self._images.batches + self._texts.batches,
            seconds=self._images.seconds + self._texts.seconds,
            bytes=self._cache.bytes,
        )

    async def aclose(self) -> None:
        """Waits for what is under way, to the last write, and ends the threads."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._compute.shutdown()
        self._disk.shutdown()

    async def _text(self, text: str) -> Row:
        row = self._known_texts.get(text)
        if row is not None:
            return row
        task = self._pending_texts.get(text)
        if task is None:
            task = self._pending_texts[text] = asyncio.create_task(self._embed_text(text))
        # Who stops waiting must not stop it for the others.
        return await asyncio.shield(task)

    async def _embed_text(self, text: str) -> Row:
        try:
            [row] = await self._texts([text])
        finally:
            del self._pending_texts[text]
        self._known_texts.put(text, row, 1)
        return row

    async def _rows(self, path: str, wanted: Sequence[int]) -> dict[int, Row]:
        """The embeddings of frames by index: remembered, waited for, or made."""
        video = await asyncio.to_thread(identify, path)
        rows: dict[int, Row] = {}
        made: set[int] = set()
        while missing := [index for index in dict.fromkeys(wanted) if index not in rows]:
            futures: dict[int, asyncio.Future[Row]] = {}
            own: list[int] = []
            for index in missing:
                row = self._cache.get(video, index)
                if row is not None:
                    rows[index] = row
                elif (video, index) in self._pending:
                    futures[index] = self._pending[video, index]
                else:
                    own.append(index)
                    futures[index] = self._pending[video, index] = asyncio.get_running_loop().create_future()
            if own:
                made.update(own)
                # A task of its own: a rollout that is cancelled must not take along what others wait for.
                task = asyncio.create_task(self._make(video, own))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            if futures:
                await asyncio.wait(futures.values())
            for index, future in futures.items():
                error = future.exception()
                if error is None:
                    rows[index] = future.result()
                elif index in made or (isinstance(error, VideoError) and error.reason == "timeout"):
                    raise error.bare() if isinstance(error, VideoError) else error
                # Else another request failed, perhaps for another frame's sake: this one tries for itself.
        self._hits += len(wanted) - len(made)
        return rows

    async def _make(self, video: VideoIdentity, indices: Sequence[int]) -> None:
        """Settles the pending embeddings of frames, from the disk cache or from the frames."""
        fresh: dict[int, Row] = {}
        try:
            stored = await self._on_disk_thread(self._cache.load, video, indices) if self._cache.on_disk else {}
            self._disk_hits += len(stored)
            for index, row in stored.items():
                self._settle(video, index, row)
            missing = [index for index in indices if index not in stored]
            if missing:
                info = await self._source.aprobe(video.path)
                size = self._encoder.frame_size(info.width, info.height)
                step = max(1, min(self._config.batch_size, _CHUNK_BYTES // (size[0] * size[1] * 3)))
                chunks = [missing[start : start + step] for start in range(0, len(missing), step)]
                await asyncio.gather(*(self._embed(video, chunk, size, fresh) for chunk in chunks))
        except BaseException as error:
            self._fail(video, indices, error)
            if not isinstance(error, Exception):
                raise
        if fresh and self._cache.on_disk:
            await self._on_disk_thread(self._cache.save, video, fresh)

    async def _embed(
        self, video: VideoIdentity, chunk: Sequence[int], size: tuple[int, int], fresh: dict[int, Row]
    ) -> None:
        """Embeds a few frames; whether they can be had is told to those who wait for them, not to the caller."""
        try:
            async with self._slots:
                frames = await self._source.aframes(video.path, chunk, size)
                rows = await self._images([frame.image for frame in frames])
        except Exception as error:
            self._fail(video, chunk, error)
            return
        for index, row in zip(chunk, rows, strict=True):
            fresh[index] = row
            self._settle(video, index, row)

    def _settle(self, video: VideoIdentity, index: int, row: Row) -> None:
        row.setflags(write=False)
        self._cache.put(video, index, row)
        self._pending.pop((video, index)).set_result(row)

    def _fail(self, video: VideoIdentity, indices: Iterable[int], error: BaseException) -> None:
        for index in indices:
            future = self._pending.pop((video, index), None)
            if future is not None and isinstance(error, Exception):
                future.set_exception(error)
                future.exception()  # who asked may be gone: nobody need hear of it
            elif future is not None:
                future.cancel()

    async def _on_disk_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._disk, function, *arguments)
