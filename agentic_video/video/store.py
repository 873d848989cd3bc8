"""A bounded store of decoded frames, shared by everything that looks at videos in one process.

Work runs on the store's own threads. The time limit of a request counts from the moment a thread takes it up, so that
a busy machine delays requests but does not fail them. A decoder that hangs beyond the limit (a dead network disk, say)
loses its place to a fresh thread, and its video is refused until it comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from agentic_video.types.frame import Frame, Origin, image_key
from agentic_video.utils.heap import trim
from agentic_video.utils.resources import cpu_limit, memory_limit
from agentic_video.video.ahead import worked_beside
from agentic_video.video.budget import Budget
from agentic_video.video.damage import DAMAGED_SHARE, REPLACE_WITHIN, nearest_readable, runs, too_damaged, too_short
from agentic_video.video.deadline import Deadline
from agentic_video.video.disk_cache import DiskCache, FrameAddress
from agentic_video.video.errors import VideoError, raise_video_error
from agentic_video.video.identity import VideoIdentity, identify
from agentic_video.video.index import VideoIndex, VideoInfo
from agentic_video.video.limits import PACKET_BYTES, Limits, coded_pixels, decoder_bytes, held_bytes, negatives
from agentic_video.video.lru import BoundedCache
from agentic_video.video.open import Backend, open_video
from agentic_video.video.ranges import keyframe_indices, shares
from agentic_video.video.reader import Developer, VideoReader
from agentic_video.video.sampling import nearest_indices
from agentic_video.video.sizes import resize
from agentic_video.video.source import Served
from agentic_video.video.workers import Job, Workers

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LEAST_INDEX_BYTES, _MOST_INDEX_BYTES = 64 * 2**20, 256 * 2**20
_FAILURES = 4096
_MEMORY_SHARE = 16
_LEAST_BYTES, _MOST_BYTES = 2 * 2**30, 32 * 2**30
_LEAST_WORKERS, _MOST_WORKERS = 4, 32
_LEAST_DECODE_BYTES, _MOST_DECODE_BYTES = 512 * 2**20, 8 * 2**30
_NAMED_SECONDS = 0.5
"""Length of a cut-off file's missing end from which on it is named."""
_SHARE_COST = 100
"""What another decoder must have to do, in packets: opening a file again costs as much as decoding a few."""

Auto = Literal["auto"]
_LASTING_REASONS = frozenset({"empty", "corrupt", "truncated", "no_video_stream", "no_frames", "unsupported"})
"""Why a video can't be had as long as its file doesn't change."""


@dataclass(frozen=True)
class StoreConfig:
    """How a frame store is bounded.

    Attributes:
        max_bytes: Most bytes of decoded frames that are kept; auto: a 16th of the memory of the store's machine, from 2
            to 32 GiB. What is handed out lies in Ray's object store too, for as long as it is used.
        time_limit: Seconds that one request may keep a decoder busy.
        workers: Decoders that run at the same time; auto: half of the processors of the store's machine, from 4 to 32.
        max_readers: Open but idle readers that are kept.
        backend: Reader backend, ``pyav`` or ``decord``.
        disk_folder: Folder on a local disk of each node that keeps decoded frames from epoch to epoch and from run to
            run; empty for none. Processes of a node may share it.
        disk_bytes: Most bytes that it may hold; the least recently used frames make room.
        ahead: Whether the first views of a batch are decoded while the one before it is trained on.
        decode_bytes: Most bytes that decoders may need together, open ones that are kept included; a video that needs
            more is refused, others wait for their turn. auto: as many as max_bytes, from 512 MiB to 8 GiB.
        max_pixels: Most pixels of a video's picture; a video with larger ones is refused.
        max_packets: Most packets (frames) of a video; the default is 19 hours of 60 frames a second. No more than one
            for each 256 bytes of decode_bytes.
        replace_within: A frame that can't be decoded is replaced by the nearest readable one, with that one's own
            number and time, no more than so many seconds away; 0: such a frame is an error.
        damaged_share: Share of a video's frames that may be damaged before the video is refused.
        square_pixels: Whether frames with non-square pixels (DVDs, broadcasts) are made as wide as players show them;
            otherwise they are left as stored, as most training code does.

    Raises:
        ValueError: On values that make no store.
    """

    max_bytes: int | Auto = 2 * 2**30
    time_limit: float = 60.0
    workers: int | Auto = 4
    max_readers: int = 16
    backend: Backend = "pyav"
    disk_folder: str = ""
    disk_bytes: int = 64 * 2**30
    ahead: bool = True
    decode_bytes: int | Auto = "auto"
    max_pixels: int = Limits.pixels
    max_packets: int = Limits.packets
    replace_within: float = REPLACE_WITHIN
    damaged_share: float = DAMAGED_SHARE
    square_pixels: bool = False

    def __post_init__(self) -> None:
        if self.max_bytes != "auto" and self.max_bytes < 0:
            raise ValueError(f"max_bytes must not be negative, got {self.max_bytes}")
        if not self.time_limit > 0:
            raise ValueError(f"time_limit must be positive seconds, got {self.time_limit}")
        if self.workers != "auto" and self.workers < 1:
            raise ValueError(f"workers must be at least 1, got {self.workers}")
        if self.max_readers < 0:
            raise ValueError(f"max_readers must not be negative, got {self.max_readers}")
        if self.disk_bytes < 0:
            raise ValueError(f"disk_bytes must not be negative, got {self.disk_bytes}")
        for name in ("decode_bytes", "max_pixels", "max_packets"):
            if (value := getattr(self, name)) != "auto" and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 <= self.replace_within < float("inf"):
            raise ValueError(f"replace_within must be seconds of at least 0, got {self.replace_within}")
        if not 0 <= self.damaged_share <= 1:
            raise ValueError(f"damaged_share must lie between 0 and 1, got {self.damaged_share}")

    def bounds(self, memory: int = 0, cpus: int = 0) -> tuple[int, int]:
        """Most bytes, and decoders, of a store on a machine.

        Args:
            memory: Its bytes; 0 for this machine.
            cpus: Its processors; 0 for this machine.
        """
        share = min(max((memory or memory_limit()) // _MEMORY_SHARE, _LEAST_BYTES), _MOST_BYTES)
        half = min(max((cpus or cpu_limit()) // 2, _LEAST_WORKERS), _MOST_WORKERS)
        return (
            share if isinstance(self.max_bytes, str) else self.max_bytes,
            half if isinstance(self.workers, str) else self.workers,
        )

    def limits(self, max_bytes: int) -> Limits:
        """Bounds of one video, in a store of so many bytes."""
        share = min(max(max_bytes, _LEAST_DECODE_BYTES), _MOST_DECODE_BYTES)
        memory = share if isinstance(self.decode_bytes, str) else self.decode_bytes
        return Limits(self.max_pixels, min(self.max_packets, memory // PACKET_BYTES), memory)


@dataclass(frozen=True)
class StoreStats:
    """What a store has done so far.

    Attributes:
        requested: Frames asked for, duplicates included.
        decoded: Frames decoded.
        hits: Frames served from the cache or from a decode under way for another request.
        evicted: Frames dropped to stay within the bound.
        errors: Videos that failed to open and frames that failed to decode, each counted once while remembered.
        timeouts: Requests that ran out of time.
        bytes: Bytes of frames held now.
        open_seconds: Seconds that its threads spent opening videos and indexing them.
        decode_seconds: Seconds that they spent decoding and resizing frames.
        loaded: Frames read from disk; served ones count as hits, too.
        prefetched: Frames had before anybody asked for them.
        prefetched_used: Those of them that somebody asked for since.
        prefetch_errors: Calls for frames ahead of time that failed.
        damaged: Frames that turned out not to decode.
        replaced: Frames served in the place of damaged ones, each counted once while it is kept.
    """

    requested: int
    decoded: int
    hits: int
    evicted: int
    errors: int
    timeouts: int
    bytes: int
    open_seconds: float = 0.0
    decode_seconds: float = 0.0
    loaded: int = 0
    prefetched: int = 0
    prefetched_used: int = 0
    prefetch_errors: int = 0
    damaged: int = 0
    replaced: int = 0


@dataclass(frozen=True)
class _Key:
    video: VideoIdentity
    index: int
    size: tuple[int, int] | None


@dataclass(frozen=True, eq=False)
class _Stored:
    """A decoded frame and its key.

    Attributes:
        index: Its own number, where it stands for a damaged frame; None for the one that was asked for.
    """

    image: np.ndarray
    key: str
    index: int | None = None


@dataclass(eq=False)
class _Damage:
    """Known damage of a video.

    Attributes:
        damaged: Frames that don't decode.
        replaced: Damaged frames that were asked for, each with the one shown in its place.
    """

    damaged: set[int] = field(default_factory=set)
    replaced: dict[int, int] = field(default_factory=dict)


@dataclass(eq=False)
class _Request:
    """One call for frames, filled as it goes.

    Attributes:
        path: Video file.
        wanted: Frame indices.
        size: (width, height) in pixels to resize to; None for the video's own.
        images: What has been had so far, by frame index.
        times: Presentation times of the video's frames in seconds, once they are known.
        decoded: Frames decoded for this request.
        seconds: Seconds that this took.
        shared: Whether idle decoders may take a part of it.
        ahead: Whether nobody has asked for the frames yet.
    """

    path: str
    wanted: frozenset[int]
    size: tuple[int, int] | None
    images: dict[int, _Stored] = field(default_factory=dict)
    times: npt.NDArray[np.float64] | None = None
    decoded: int = 0
    seconds: float = 0.0
    shared: bool = True
    ahead: bool = False


@dataclass(frozen=True, eq=False)
class _Idle:
    """An open reader that nobody uses, and the bytes that are set aside for what its decoder holds."""

    video: VideoIdentity
    reader: VideoReader
    nbytes: int


class _Full(Exception):
    """There is no room for a frame that nobody has asked for."""


class _Released(Exception):
    """The request that was to produce this gave up before it came to it; whoever waits may try itself."""


class FrameStore:
    """Thread-safe cache of decoded frames with a bound in bytes; each distinct frame is decoded once.

    Frames come as read-only arrays and stay valid after they are evicted.

    Args:
        config: Its bounds.
    """

    def __init__(self, config: StoreConfig | None = None) -> None:
        self._config = config or StoreConfig()
        max_bytes, workers = self._config.bounds()
        index_bytes = min(max(max_bytes // 4, _LEAST_INDEX_BYTES), _MOST_INDEX_BYTES)
        self._limits = self._config.limits(max_bytes)
        assert self._limits.memory is not None
        self._budget = Budget(self._limits.memory, self._close_idle)
        self._freed = 0
        self._workers = Workers(workers, self._on_stuck, self._on_return)
        self._cpus = cpu_limit()
        folder, bound = self._config.disk_folder, self._config.disk_bytes
        self._disk = DiskCache(folder, bound) if folder and bound else None
        self._ahead: dict[_Key, int] = {}
        self._ahead_bytes = 0
        self._developers = ThreadPoolExecutor(max(1, min(workers, self._cpus)), "frame-store-develop")
        self._lock = threading.Lock()
        self._images: BoundedCache[_Key, _Stored] = BoundedCache(max_bytes, lambda stored: stored.image.nbytes)
        self._indexes: BoundedCache[VideoIdentity, VideoIndex] = BoundedCache(index_bytes, lambda index: index.nbytes)
        self._failures: BoundedCache[VideoIdentity, VideoError] = BoundedCache(_FAILURES)
        self._damage: BoundedCache[VideoIdentity, _Damage] = BoundedCache(_FAILURES)
        self._readers: OrderedDict[int, _Idle] = OrderedDict()
        self._pending: dict[_Key | VideoIdentity, Future[Any]] = {}
        self._stuck: dict[str, int] = {}
        self._requested = self._decoded = self._hits = self._errors = self._timeouts = 0
        self._open_seconds = self._decode_seconds = 0.0
        self._loaded = self._prefetched = self._prefetched_used = self._prefetch_errors = 0
        self._damaged = self._replaced = 0

    def probe(self, path: str) -> VideoInfo:
        """Facts about a video.

        Args:
            path: Video file.

        Returns:
            Its facts, cached as long as the file does not change.

        Raises:
            VideoError: When it cannot be opened; remembered as long as the file does not change.
        """
        return _drive(self._probe_steps(path)).info

    def timestamps(self, path: str) -> npt.NDArray[np.float64]:
        """Presentation times of all frames in seconds, shape (num_frames,), read-only; raises as :meth:`probe`."""
        return _drive(self._probe_steps(path)).timestamps

    def frames(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> list[Frame]:
        """Find frames, or decode them.

        Args:
            path: Video file.
            indices: Frame indices in any order; duplicates are allowed.
            size: (width, height) in pixels to resize to; None for the video's own.

        Returns:
            One frame per index in the asked order, images read-only. In the place of one that can't be decoded stands
            the nearest readable one, with its own number and time.

        Raises:
            VideoError: When the video or a frame cannot be had in time.
            ValueError: On a size that is not positive.
        """
        return _drive(self._frames_steps(path, indices, size)).frames

    async def aprobe(self, path: str) -> VideoInfo:
        """As :meth:`probe`, off the event loop."""
        return (await _adrive(self._probe_steps(path))).info

    async def akeyframes(self, path: str) -> list[int]:
        """The frames that are decoded from their own packet alone, ascending; raises as :meth:`probe`."""
        return keyframe_indices(await _adrive(self._probe_steps(path)))

    async def aframes(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> list[Frame]:
        """As :meth:`frames`, off the event loop."""
        return (await self.aserve(path, indices, size)).frames

    async def aframes_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> list[Frame]:
        """The frames closest to the given times (seconds), off the event loop; raises as :meth:`frames`."""
        return (await self.aserve_at(path, times, size)).frames

    async def aserve(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> Served:
        """As :meth:`aframes`, with what it took."""
        return await _adrive(self._frames_steps(path, indices, size))

    async def aserve_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> Served:
        """As :meth:`aframes_at`, with what it took."""
        timestamps = (await _adrive(self._probe_steps(path))).timestamps
        return await self.aserve(path, nearest_indices(timestamps, times), size)

    async def aprefetch(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> int:
        """Have frames at hand before somebody asks for them, while nothing else wants the decoders.

        At most half of the decoders do this, one at least, and none is kept from work that waits. Frames had ahead of
        time take half of the store at most, for which the least recently used ones make room; what doesn't fit is left
        out. A failure is counted and otherwise left to whoever asks for the frames.

        Args:
            path: Video file.
            indices: Frame indices in any order.
            size: (width, height) in pixels to resize to; None for the video's own.

        Returns:
            How many of the frames are at hand then.
        """
        request = _Request(path, frozenset(map(int, indices)), size and (int(size[0]), int(size[1])), ahead=True)
        request.shared = False
        try:
            while True:
                waiting = await _await(self._submit(path, lambda job: self._prefetch(job, request), spare=True))
                if waiting is None:
                    continue  # stopped for others' work: in the queue again, behind it
                if None not in waiting:
                    # What others decode is as good as had.
                    return len(request.images) + len(waiting)
                with contextlib.suppress(_Released):
                    await _await(waiting[None])
        except _Full:
            pass
        except (VideoError, ValueError) as error:
            logger.debug("frames ahead of time: %s", error)
            with self._lock:
                self._prefetch_errors += 1
        return len(request.images)

    async def aprefetch_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> int:
        """As :meth:`aprefetch`, the frames closest to the given times (seconds)."""
        try:
            timestamps = (await _adrive(self._probe_steps(path))).timestamps
        except VideoError:
            with self._lock:
                self._prefetch_errors += 1
            return 0
        return await self.aprefetch(path, nearest_indices(timestamps, times), size)

    def stats(self) -> StoreStats:
        """Counts so far."""
        with self._lock:
            return StoreStats(
                requested=self._requested,
                decoded=self._decoded,
                hits=self._hits,
                evicted=self._images.evicted,
                errors=self._errors,
                timeouts=self._timeouts,
                bytes=int(self._images.currsize),
                open_seconds=self._open_seconds,
                decode_seconds=self._decode_seconds,
                loaded=self._loaded,
                prefetched=self._prefetched,
                prefetched_used=self._prefetched_used,
                prefetch_errors=self._prefetch_errors,
                damaged=self._damaged,
                replaced=self._replaced,
            )

    def close(self) -> None:
        """Close idle readers and forget everything cached; the store stays usable."""
        with self._lock:
            idle = list(self._readers.values())
            self._readers.clear()
            self._images.clear()
            self._ahead.clear()
            self._ahead_bytes = 0
            self._indexes.clear()
            self._failures.clear()
            self._damage.clear()
        self._close(idle)

    # The steps of a request yield futures to wait for: work on the store's threads, or what others have under way.
    # Nothing waits on a thread of the store, so requests cannot starve each other of threads.

    def _probe_steps(self, path: str) -> Generator[Future[Any], Any, VideoIndex]:
        while True:
            outcome = yield self._submit(path, lambda job: self._find_index(job, identify(path)))
            if isinstance(outcome, VideoIndex):
                return outcome
            try:
                return (yield outcome)
            except _Released:
                continue

    def _frames_steps(
        self, path: str, indices: Sequence[int], size: tuple[int, int] | None
    ) -> Generator[Future[Any], Any, Served]:
        wanted = [int(index) for index in indices]
        if size is not None and (len(size) != 2 or min(size) < 1):
            raise ValueError(f"size must be a positive (width, height) in pixels, got {size}")
        size = None if size is None else (int(size[0]), int(size[1]))
        request = _Request(path, frozenset(wanted), size)
        with self._lock:
            self._requested += len(wanted)
        while True:
            waiting: dict[int | None, Future[Any]] = yield self._submit(path, lambda job: self._load(job, request))
            for index, future in waiting.items():
                try:
                    outcome = yield future
                except _Released:
                    request.shared = False
                    continue
                if index is not None:
                    request.images[index] = outcome
            if request.times is not None and len(request.images) == len(request.wanted):
                break
        with self._lock:
            self._hits += len(wanted) - request.decoded
        frames = [
            Frame.stored(index, float(request.times[index]), had.image, Origin(path, index, size), had.key)
            for number in wanted
            for had in (request.images[number],)
            for index in (number if had.index is None else had.index,)
        ]
        return Served(frames, request.decoded, request.seconds)

    def _submit(self, path: str, run: Callable[[Job], T], spare: bool = False) -> Future[T]:
        with self._lock:
            if self._stuck.get(path, 0) > 0:
                raise VideoError(
                    path, "timeout", "a decoder is still stuck on this file; check the disk or leave the video out"
                )
        return self._workers.submit(Job(path, run, self._config.time_limit, spare=spare))

    def _find_index(self, job: Job, video: VideoIdentity) -> VideoIndex | Future[Any]:
        """The index of a video, or the future of the request that is making it; runs on a worker."""
        with self._lock:
            failure = self._failures.get(video)
            if failure is not None:
                raise failure.bare()
            index = self._indexes.get(video)
            if index is not None:
                return index
            if video in self._pending:
                return self._pending[video]
            self._claim(job, video)
        started = time.monotonic()
        try:
            reader = self._open(job, video)
        except BaseException as error:
            if isinstance(error, VideoError):
                self._count(error)
                if error.reason in _LASTING_REASONS:
                    with self._lock:
                        self._failures[video] = error.bare()
            self._settle(job, video, error=error)
            raise
        with self._lock:
            self._open_seconds += time.monotonic() - started
            self._indexes[video] = reader.index
        self._park(_Idle(video, reader, 0))
        self._settle(job, video, reader.index)
        return reader.index

    def _open(self, job: Job, video: VideoIdentity) -> VideoReader:
        config, hold = self._config, partial(self._hold, job)
        reader = open_video(video.path, config.backend, job.time_left(), None, self._limits, hold, config.square_pixels)
        info = reader.info
        if error := too_short(info, config.damaged_share):
            reader.close()
            raise error
        if info.missing_seconds > _NAMED_SECONDS:
            logger.warning(
                "%s: the file is cut off: its last %.1f s are missing; copy it again", info.path, info.missing_seconds
            )
        return reader

    def _load(self, job: Job, request: _Request) -> dict[int | None, Future[Any]]:
        """Find or decode what a request lacks; what others have under way is returned. Runs on a worker."""
        video = identify(request.path)
        index = self._find_index(job, video)
        if isinstance(index, Future):
            return {None: index}
        request.times = index.timestamps
        waiting: dict[int | None, Future[Any]] = {}
        own: list[int] = []
        with self._lock:
            for number in sorted(request.wanted - request.images.keys()):
                key = _Key(video, number, request.size)
                stored = self._images.get(key)
                if stored is not None:
                    request.images[number] = stored
                    if not request.ahead and self._is_used(key):
                        self._prefetched_used += 1
                elif key in self._pending:
                    waiting[number] = self._pending[key]
                else:
                    self._claim(job, key)
                    own.append(number)
        if own:
            try:
                own = self._read_disk(job, request, video, own)
                kept, helped = self._share_out(job, request, video, index, own)
                waiting.update(helped)
                if kept:
                    self._decode(job, request, video, index, kept)
            except BaseException as error:
                self._give_up(job, error)
                raise
        return waiting

    def _prefetch(self, job: Job, request: _Request) -> dict[int | None, Future[Any]] | None:
        """As :meth:`_load`; None when it made way for other work."""
        try:
            return self._load(job, request)
        except _Released:
            return None

    def _read_disk(self, job: Job, request: _Request, video: VideoIdentity, own: list[int]) -> list[int]:
        """Find on disk what a job has claimed; returns what isn't there."""
        if self._disk is None:
            return own
        missing: list[int] = []
        for number in own:
            had = self._disk.get(self._address(video, number, request.size))
            if had is None:
                missing.append(number)
                continue
            with self._lock:
                self._loaded += 1
            self._keep(job, request, _Key(video, number, request.size), _Stored(*had))
        return missing

    def _address(self, video: VideoIdentity, number: int, size: tuple[int, int] | None) -> FrameAddress:
        how = self._config.backend + ("-square" if self._config.square_pixels else "")
        return FrameAddress(video, number, size, how)

    def _keep(self, job: Job, request: _Request, key: _Key, stored: _Stored) -> None:
        """Put a frame into the store and the request, and tell those who wait for it."""
        nbytes = stored.image.nbytes
        with self._lock:
            self._is_used(key)  # it may have been dropped unused
            if request.ahead:
                if not self._has_room_ahead(nbytes):
                    raise _Full
                self._ahead[key] = nbytes
                self._ahead_bytes += nbytes
                self._prefetched += 1
            self._images[key] = stored
        request.images[key.index] = stored
        self._settle(job, key, stored)

    def _has_room_ahead(self, nbytes: int) -> bool:
        """Whether a frame that nobody has asked for fits; the lock is held.

        A store is full after a few steps: were no frame to make room, nothing would be had ahead of time from then on.
        The half of the store that was used last stays.
        """
        if self._ahead_bytes + nbytes > self._images.maxsize / 2:
            for key in [key for key in self._ahead if key not in self._images]:
                self._is_used(key)
        return self._ahead_bytes + nbytes <= self._images.maxsize / 2

    def _is_used(self, key: _Key) -> bool:
        """Take a frame off those that nobody has asked for; whether it was one. The lock is held."""
        nbytes = self._ahead.pop(key, None)
        self._ahead_bytes -= nbytes or 0
        return nbytes is not None

    def _share_out(
        self, job: Job, request: _Request, video: VideoIdentity, index: VideoIndex, own: list[int]
    ) -> tuple[list[int], dict[int | None, Future[Any]]]:
        """Give idle decoders a part of what a job has claimed."""
        known = [number for number in own if 0 <= number < index.info.num_frames]
        if not request.shared or len(known) < len(own):
            return own, {}
        decoders = min(self._workers.idle() + 1, self._cpus)
        kept, *others = shares(index, own, decoders, _SHARE_COST)
        given: dict[int | None, Future[Any]] = {}
        for numbers in others:
            helper = Job(request.path, partial(self._help, request, video, index, numbers), self._config.time_limit)
            with self._lock:
                keys = [_Key(video, number, request.size) for number in numbers]
                helper.claims.update((key, job.claims.pop(key)) for key in keys)
            given.update((number, helper.claims[key]) for number, key in zip(numbers, keys, strict=True))
            self._workers.submit(helper)
        return kept, given

    def _help(self, request: _Request, video: VideoIdentity, index: VideoIndex, numbers: list[int], job: Job) -> None:
        """Decode a part of a request. Who waits for what fails decodes it once more, and gets the error then."""
        try:
            self._decode(job, request, video, index, numbers)
        except BaseException as error:
            self._give_up(job, error, counted=isinstance(error, VideoError) and error.reason == "timeout")

    def _give_up(self, job: Job, error: BaseException, counted: bool = True) -> None:
        """Tell those who wait for what a job had claimed: they try themselves, unless that would take too long."""
        if counted and isinstance(error, VideoError):
            self._count(error)
        timeout = isinstance(error, VideoError) and error.reason == "timeout"
        for key in list(job.claims):
            self._settle(job, key, error=error if timeout else _Released())

    def _decode(self, job: Job, request: _Request, video: VideoIdentity, index: VideoIndex, own: list[int]) -> None:
        info = index.info
        # Sides as stored or as displayed: the same number of pixels, nearly
        nbytes = min(decoder_bytes(info.codec, info.pixel_format, info.width, info.height), self._budget.limit)
        with self._lock:
            known = self._damage.get(video)
            shown = {number: number if known is None else known.replaced.get(number, number) for number in own}
        reader = self._borrow(job, video, index, nbytes)
        started = time.monotonic()
        try:
            self._decode_from(reader, job, request, video, shown)
        except BaseException as error:
            reader.close()
            self._drop(job, nbytes)
            if isinstance(error, MemoryError):
                raise_video_error(video.path, error)
            raise
        finally:
            seconds = time.monotonic() - started
            with self._lock:
                request.seconds += seconds
                self._decode_seconds += seconds
        held = min(held_bytes(info.codec, info.pixel_format, info.width, info.height), nbytes)
        self._drop(job, nbytes - held)
        with self._lock:
            # Nothing is left of a job that was stuck, and came back.
            idle, job.held = _Idle(video, reader, job.held), 0
        self._park(idle)

    def _decode_from(
        self, reader: VideoReader, job: Job, request: _Request, video: VideoIdentity, shown: dict[int, int]
    ) -> None:
        """Decode what a job has claimed with a reader."""
        info = reader.info
        damaged: list[int] = []
        pictures = _readable(reader.attempt(sorted(set(shown.values())), job.time_left()), damaged)
        asked: dict[int, list[int]] = {}
        for number, index in shown.items():
            asked.setdefault(index, []).append(number)
        waiting = negatives(coded_pixels(info.width, info.height))
        develop = partial(_develop, request.size)
        for index, stored in worked_beside(self._developers, pictures, develop, waiting, self._has_room_beside):
            with self._lock:
                self._decoded += 1
                request.decoded += 1
                self._replaced += sum(number != index for number in asked[index])
            if self._disk is not None:
                self._disk.put(self._address(video, index, request.size), stored.image, stored.key)
            for number in asked[index]:
                had = stored if number == index else replace(stored, index=index)
                self._keep(job, request, _Key(video, number, request.size), had)
            if request.ahead and (self._workers.wanted() or self._budget.wanted):
                raise _Released
        if damaged:
            found = self._replacements(reader, job, video, damaged)
            self._decode_from(reader, job, request, video, found)

    def _replacements(self, reader: VideoReader, job: Job, video: VideoIdentity, damaged: list[int]) -> dict[int, int]:
        """For each frame that turned out to be damaged the one that is shown in its place."""
        within, share, info = self._config.replace_within, self._config.damaged_share, reader.info
        with self._lock:
            known = self._damage.get(video) or _Damage()
            self._damage[video] = known
        found: dict[int, int] = {}
        for number in damaged:
            self._note_damage(known, [number])
            nearest = None
            if within:
                nearest, more = nearest_readable(reader, number, within, set(known.damaged), job.time_left())
                self._note_damage(known, more)
            if error := too_damaged(video.path, known.damaged, info.num_frames, share):
                with self._lock:
                    self._failures[video] = error.bare()
                raise error
            if nearest is None:
                near = f", nor any within frame_store.replace_within={within:g} s of it" if within else ""
                raise VideoError(
                    video.path,
                    "corrupt",
                    f"frame {number} at {reader.timestamps[number]:.3f} s can't be decoded{near}; use other frames, or "
                    "replace or re-encode the file",
                )
            found[number] = nearest
        with self._lock:
            new = not known.replaced
            known.replaced.update(found)
        if new:
            logger.warning(
                "%s: frames %s can't be decoded; the nearest readable ones are shown in their place",
                video.path,
                runs(known.damaged),
            )
        return found

    def _note_damage(self, known: _Damage, numbers: Sequence[int]) -> None:
        with self._lock:
            fresh = set(numbers) - known.damaged
            known.damaged |= fresh
            self._damaged += len(fresh)

    def _has_room_beside(self) -> bool:
        """Whether a processor has no decoder: handing a picture to another thread costs more than it saves else."""
        return self._workers.running() < self._cpus

    def _borrow(self, job: Job, video: VideoIdentity, index: VideoIndex, nbytes: int) -> VideoReader:
        """A reader, with as many bytes set aside for it."""
        with self._lock:
            place = next((place for place, idle in self._readers.items() if idle.video == video), None)
            idle = None if place is None else self._readers.pop(place)
        # What an idle one holds is given back first: nobody waits for bytes while having some.
        if idle is not None:
            self._budget.release(idle.nbytes)
        try:
            self._take(job, nbytes)
        except BaseException:
            if idle is not None:
                idle.reader.close()
            raise
        if idle is not None:
            return idle.reader
        try:
            return open_video(video.path, self._config.backend, self._config.time_limit, index, self._limits)
        except BaseException:
            self._drop(job, nbytes)
            raise

    @contextlib.contextmanager
    def _hold(self, job: Job, nbytes: int, deadline: Deadline) -> Iterator[None]:
        """Bytes set aside while something is done."""
        self._take(job, nbytes, deadline)
        try:
            yield
        finally:
            self._drop(job, nbytes)

    def _take(self, job: Job, nbytes: int, deadline: Deadline | None = None) -> None:
        """Set bytes aside for a job."""
        self._budget.acquire(nbytes, partial(self._wait_longer, job, deadline))
        with self._lock:
            job.held += min(nbytes, self._budget.limit)

    def _drop(self, job: Job, nbytes: int) -> None:
        """Give bytes of a job's back, as far as it still has them: a stuck one has none."""
        with self._lock:
            nbytes = min(nbytes, job.held)
            job.held -= nbytes
        self._release(nbytes)

    def _release(self, nbytes: int) -> None:
        """Give back bytes that were set aside for a decoder which is gone; its pages, too, once they are many."""
        self._budget.release(nbytes)
        with self._lock:
            self._freed += nbytes
            many = self._freed > self._budget.limit // 2
            if many:
                self._freed = 0
        if many:
            trim()

    def _wait_longer(self, job: Job, deadline: Deadline | None, seconds: float) -> None:
        """Give a job that waits for others' bytes more time, up to its time limit once more."""
        job.waited += seconds
        if job.waited > job.limit:
            raise VideoError(
                job.path,
                "machine",
                "no memory to decode it in; raise frame_store.decode_bytes, or lower .workers",
            )
        job.end += seconds
        if deadline is not None:
            deadline.extend(seconds)

    def _park(self, idle: _Idle) -> None:
        """Keep a reader open for the next request; the ones idle for longest are closed."""
        with self._lock:
            self._readers[id(idle.reader)] = idle
            surplus = [
                self._readers.popitem(last=False)[1]
                for _ in range(max(0, len(self._readers) - self._config.max_readers))
            ]
        self._close(surplus)

    def _close(self, readers: Sequence[_Idle]) -> None:
        for idle in readers:
            idle.reader.close()
            self._release(idle.nbytes)

    def _close_idle(self) -> bool:
        """Close the reader that holds memory and has been idle for longest; whether there was one."""
        with self._lock:
            place = next((place for place, idle in self._readers.items() if idle.nbytes), None)
            if place is None:
                return False
            idle = self._readers.pop(place)
        self._close([idle])
        return True

    def _count(self, error: VideoError) -> None:
        with self._lock:
            if error.reason == "timeout":
                self._timeouts += 1
            elif error.reason != "machine":
                self._errors += 1

    def _claim(self, job: Job, key: _Key | VideoIdentity) -> None:
        """Announce that a job will produce something; the lock is held."""
        future: Future[Any] = Future()
        # A waiter that is cancelled must not cancel it for the others.
        future.set_running_or_notify_cancel()
        self._pending[key] = job.claims[key] = future

    def _settle(
        self, job: Job, key: _Key | VideoIdentity, result: object = None, error: BaseException | None = None
    ) -> None:
        """Tell those who wait what became of something a job had claimed."""
        with self._lock:
            future = job.claims.pop(key, None)
            if future is None:
                return
            del self._pending[key]
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def _on_stuck(self, job: Job, error: VideoError) -> None:
        self._count(error)
        with self._lock:
            self._count_stuck(job.path, 1)
            claims = list(job.claims)
        # Others can't wait for it: what it really holds is lost to them anyway.
        self._drop(job, job.held)
        for key in claims:
            self._settle(job, key, error=error)

    def _on_return(self, job: Job) -> None:
        with self._lock:
            self._count_stuck(job.path, -1)

    def _count_stuck(self, path: str, more: int) -> None:
        """A decoder more, or less, is stuck on a video; the lock is held. One that returns may be counted off first."""
        self._stuck[path] = self._stuck.get(path, 0) + more
        if not self._stuck[path]:
            del self._stuck[path]


def _readable(
    pictures: Iterator[tuple[int, Developer | VideoError]], damaged: list[int]
) -> Iterator[tuple[int, Developer]]:
    """The frames that can be decoded; the others' numbers are added to ``damaged``."""
    for index, developer in pictures:
        if isinstance(developer, VideoError):
            damaged.append(index)
        else:
            yield index, developer


def _develop(size: tuple[int, int] | None, negative: Developer) -> _Stored:
    picture = negative()
    image = resize(picture, *size) if size is not None else picture
    image.setflags(write=False)
    return _Stored(image, image_key(image))


def _drive(steps: Generator[Future[Any], Any, T]) -> T:
    """Run a request from an ordinary thread."""
    try:
        future = next(steps)
        while True:
            try:
                result = future.result()
            except BaseException as error:
                future = steps.throw(error)
            else:
                future = steps.send(result)
    except StopIteration as stop:
        return stop.value


async def _await(future: Future[T]) -> T:
    return await asyncio.wrap_future(future)


async def _adrive(steps: Generator[Future[Any], Any, T]) -> T:
    """Run a request from an event loop."""
    try:
        future = next(steps)
        while True:
            try:
                result = await asyncio.wrap_future(future)
            except BaseException as error:
                future = steps.throw(error)
            else:
                future = steps.send(result)
    except StopIteration as stop:
        return stop.value
