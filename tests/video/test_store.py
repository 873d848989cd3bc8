"""The frame store: bounded, shared, each frame decoded once, and never stuck."""

import asyncio
import functools
import operator
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentic_video.config.typed import dataclass_from
from agentic_video.types.frame import Frame
from agentic_video.video import decoders as decoders_module
from agentic_video.video import store as store_module
from agentic_video.video import store_config as config_module
from agentic_video.video import workers as workers_module
from agentic_video.video.errors import VideoError
from agentic_video.video.limits import decoder_bytes
from agentic_video.video.open import open_video
from agentic_video.video.pyav import PyavReader
from agentic_video.video.reader import RgbConverter, VideoReader
from agentic_video.video.sizes import resize
from agentic_video.video.source import FrameRequest
from agentic_video.video.store import FrameStore
from agentic_video.video.store_config import StoreConfig
from tests.video.video_files import number_in

Video = Callable[[str], str]
FRAME = 128 * 64 * 3
WAIT = 30.0
"""Seconds after which a test that hangs fails."""


async def frames_of(
    store: FrameStore, path: str, indices: Sequence[int], size: tuple[int, int] | None = None
) -> list[Frame]:
    return (await store.serve(FrameRequest(path, indices, size=size))).frames


async def prefetch(store: FrameStore, path: str, indices: Sequence[int]) -> int:
    return (await store.serve(FrameRequest(path, indices, prefetch=True))).prefetched


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    paths: list[str] = []

    def opening(path: str, *arguments: object) -> VideoReader:
        paths.append(path)
        return open_video(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(decoders_module, "open_video", opening)
    return paths


BeforeFrame = Callable[[Callable[[int], None]], None]


@pytest.fixture
def before_each(monkeypatch: pytest.MonkeyPatch) -> BeforeFrame:
    iter_decoded = VideoReader.iter_decoded

    def use(before: Callable[[int], None]) -> None:
        def noting(self: VideoReader, indices: list[int], limit: float | None) -> Iterator[Any]:
            for index in indices:
                before(index)
                yield from iter_decoded(self, [index], limit)

        monkeypatch.setattr(VideoReader, "iter_decoded", noting)

    return use


def broken_at(number: int) -> Callable[[int], None]:
    def fail(index: int) -> None:
        time.sleep(0.02)
        if index == number:
            raise VideoError("x", "corrupt", f"frame {index}")

    return fail


def test_frames_times_and_facts(video: Video) -> None:
    store, path = FrameStore(), video("variable_rate")
    with open_video(path) as reader:
        assert store.probe(path) == reader.info
        frames = store.frames(path, [40, 3, 40])
        assert [frame.index for frame in frames] == [40, 3, 40]
        assert [frame.time for frame in frames] == [reader.timestamps[index] for index in (40, 3, 40)]
        assert [number_in(frame.image) for frame in frames] == [40, 3, 40]
        small = store.frames(path, [7], (64, 32))[0]
        assert np.array_equal(small.image, resize(reader.read([7])[0], 64, 32))
    assert (small.width, small.height) == (64, 32)
    assert not small.image.flags.writeable and not frames[0].image.flags.writeable
    stats = store.stats()
    assert (stats.requested, stats.decoded, stats.hits) == (4, 3, 1)
    assert stats.bytes == 2 * FRAME + 64 * 32 * 3


def test_concurrent_requests_decode_each_frame_once(video: Video, opened: list[str]) -> None:
    store, path = FrameStore(StoreConfig(workers=4)), video("h264_long_gop")

    async def episodes() -> list[list[int]]:
        wanted = [[10, 50, 90], [50, 90, 10], [90], [10, 11], [11, 50]] * 6
        answers = await asyncio.gather(*(frames_of(store, path, indices) for indices in wanted))
        assert [[frame.index for frame in frames] for frames in answers] == wanted
        return [[number_in(frame.image) for frame in frames] for frames in answers]

    numbers = asyncio.run(episodes())
    assert numbers[:5] == [[10, 50, 90], [50, 90, 10], [90], [10, 11], [11, 50]]
    stats = store.stats()
    assert (stats.requested, stats.decoded, stats.hits) == (66, 4, 62)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda index: store.frames(path, [index % 20]), range(100)))
    assert [number_in(frames[0].image) for frames in answers] == [index % 20 for index in range(100)]
    assert store.stats().decoded == 4 + 20 - 2


def test_failures_are_remembered_until_the_file_changes(video: Video, tmp_path: Path, opened: list[str]) -> None:
    path = tmp_path / "video.mp4"
    store = FrameStore()
    for _ in range(2):
        with pytest.raises(VideoError, match="no such file"):
            store.probe(str(path))
    path.write_bytes(b"nothing of value" * 100)
    for call in (store.probe, store.probe, lambda name: store.frames(name, [0])):
        with pytest.raises(VideoError) as caught:
            call(str(path))
        assert caught.value.reason == "corrupt"
    assert (len(opened), store.stats().errors) == (1, 1)
    path.write_bytes(Path(video("h264_b_frames")).read_bytes())
    assert store.probe(str(path)).num_frames == 60


def test_requests_beyond_the_video_and_configs_out_of_range_are_refused(video: Video) -> None:
    store, path = FrameStore(), video("h264_b_frames")
    for indices in ([60], [-1]):
        with pytest.raises(VideoError) as caught:
            store.frames(path, indices)
        assert caught.value.reason == "out_of_range"
    assert number_in(store.frames(path, [59])[0].image) == 59
    for config in ({"max_bytes": -1}, {"time_limit": 0.0}, {"workers": 0}, {"max_readers": -1}):
        with pytest.raises(ValueError):
            dataclass_from(StoreConfig, config, "agentic_video.frame_store")


@pytest.mark.parametrize(
    ("gib", "processors", "expected_gib", "workers"),
    [(16, 2, 2, 4), (256, 32, 16, 16), (2048, 192, 32, 32)],
    ids=["laptop", "node", "large node"],
)
def test_bounds_by_the_machine(
    gib: int, processors: int, expected_gib: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_module, "memory_limit", lambda: gib * 2**30)
    monkeypatch.setattr(config_module, "cpu_limit", lambda: processors)
    assert StoreConfig(max_bytes="auto", workers="auto").bounds() == (expected_gib * 2**30, workers)
    assert StoreConfig(max_bytes=5, workers="auto").bounds() == (5, workers)
    assert StoreConfig(max_bytes=5, workers=3).bounds() == (5, 3)


def test_one_bad_frame_does_not_fail_the_others(video: Video, before_each: BeforeFrame) -> None:
    before_each(broken_at(5))
    store, path = FrameStore(StoreConfig(workers=4)), video("h264_b_frames")
    store.probe(path)

    async def together() -> list[object]:
        return await asyncio.gather(
            frames_of(store, path, [4, 5, 6]),
            frames_of(store, path, [6]),
            frames_of(store, path, [5]),
            return_exceptions=True,
        )

    both, sound, broken = asyncio.run(together())
    assert isinstance(both, VideoError) and isinstance(broken, VideoError)
    assert isinstance(sound, list) and number_in(sound[0].image) == 6


def test_a_stuck_decoder_is_replaced(video: Video, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, release, stuck_path = threading.Event(), threading.Event(), video("h264_long_gop")
    calls: list[str] = []

    def opening(path: str, *arguments: object) -> VideoReader:
        calls.append(path)
        if path == stuck_path:
            taken.set()
            release.wait(WAIT)
        return open_video(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(decoders_module, "open_video", opening)
    monkeypatch.setattr(workers_module, "GRACE_SECONDS", 0.1)
    store, good = FrameStore(StoreConfig(workers=1, time_limit=0.3)), video("h264_b_frames")

    async def both() -> None:
        stuck = asyncio.create_task(frames_of(store, stuck_path, [0]))
        await asyncio.to_thread(taken.wait, WAIT)
        assert number_in((await frames_of(store, good, [9]))[0].image) == 9
        with pytest.raises(VideoError) as caught:
            await stuck
        assert caught.value.reason == "timeout"

    asyncio.run(both())
    with pytest.raises(VideoError, match="still stuck"):
        store.probe(stuck_path)
    assert calls.count(stuck_path) == 1 and store.stats().timeouts == 1
    release.set()
    for _ in range(200):
        try:
            assert store.probe(stuck_path).num_frames == 120
            break
        except VideoError:
            time.sleep(0.01)
    else:
        pytest.fail("the video is still refused though its decoder came back")


def test_a_cancelled_request_does_not_cancel_others(video: Video) -> None:
    store, path = FrameStore(), video("h264_long_gop")

    async def cancel_one() -> list[int]:
        first = asyncio.create_task(frames_of(store, path, range(0, 120, 3)))
        second = asyncio.create_task(frames_of(store, path, range(0, 120, 3)))
        await asyncio.sleep(0.02)
        first.cancel()
        return [number_in(frame.image) for frame in await second]

    assert asyncio.run(cancel_one()) == list(range(0, 120, 3))


def test_few_readers_stay_open(video: Video, opened: list[str]) -> None:
    store = FrameStore(StoreConfig(max_readers=1, max_bytes=0))
    a, b = video("h264_b_frames"), video("hevc")
    for path in (a, a, b, a):
        assert number_in(store.frames(path, [3])[0].image) == 3
    assert opened == [a, b, a]
    store.close()
    assert number_in(store.frames(a, [4])[0].image) == 4


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 6 * FRAME),
    st.lists(
        st.tuples(st.lists(st.integers(0, 59), max_size=6), st.sampled_from([None, (64, 32), (32, 32)])), max_size=6
    ),
)
def test_never_holds_more_than_its_bound(
    video: Video, bound: int, requests: list[tuple[list[int], tuple[int, int] | None]]
) -> None:
    store, path = FrameStore(StoreConfig(max_bytes=bound, workers=1)), video("h264_b_frames")
    asked: set[tuple[int, tuple[int, int] | None]] = set()
    for indices, size in requests:
        frames = store.frames(path, indices, size)
        assert [frame.index for frame in frames] == indices
        asked |= {(index, size) for index in indices}
        sizes = [FRAME if shape is None else 3 * shape[0] * shape[1] for _, shape in asked]
        held, kept = store.stats().bytes, sum(size for size in sizes if size <= bound)
        # all of them where there is room, else as many as there is room for
        assert held == kept if kept <= bound else bound - FRAME < held <= bound


def test_idle_decoders_take_a_part_and_give_the_same_frames(video: Video, monkeypatch: pytest.MonkeyPatch) -> None:
    path, wanted = video("h264_b_frames"), list(range(0, 60, 5))
    alone = FrameStore(StoreConfig(workers=1)).frames(path, wanted)
    parts: list[list[int]] = []
    iter_decoded = VideoReader.iter_decoded

    def counting(self: VideoReader, indices: list[int], limit: float | None) -> Iterator[tuple[int, RgbConverter]]:
        parts.append(list(indices))
        return iter_decoded(self, indices, limit)

    monkeypatch.setattr(VideoReader, "iter_decoded", counting)
    monkeypatch.setattr(store_module, "_SPLIT_COST", 1)
    monkeypatch.setattr(store_module, "cpu_limit", lambda: 3)
    store = FrameStore(StoreConfig(workers=3))
    together = store.frames(path, wanted)
    assert [frame.key for frame in together] == [frame.key for frame in alone]
    assert len(parts) == 3 and sorted(functools.reduce(operator.iadd, parts, [])) == wanted
    assert store.stats().decoded == len(wanted)


def test_a_bad_frame_in_a_helpers_part_is_an_error_counted_once(
    video: Video, monkeypatch: pytest.MonkeyPatch, before_each: BeforeFrame
) -> None:
    before_each(broken_at(55))
    monkeypatch.setattr(store_module, "_SPLIT_COST", 1)
    monkeypatch.setattr(store_module, "cpu_limit", lambda: 4)
    store, path = FrameStore(StoreConfig(workers=4)), video("h264_b_frames")
    with pytest.raises(VideoError, match="frame 55"):
        store.frames(path, range(0, 60, 5))
    assert store.stats().errors == 1
    assert [number_in(frame.image) for frame in store.frames(path, [0, 50])] == [0, 50]


def test_frames_on_disk_are_not_decoded_again(video: Video, tmp_path: Path) -> None:
    config, path = StoreConfig(disk_folder=str(tmp_path / "frames")), video("h264_b_frames")
    first = FrameStore(config)
    frames = first.frames(path, [3, 40], (64, 32))
    assert first._disk is not None
    first._disk.flush()
    second = FrameStore(config)
    again = second.frames(path, [3, 40, 41], (64, 32))
    assert [frame.key for frame in again[:2]] == [frame.key for frame in frames]
    assert np.array_equal(again[0].image, frames[0].image) and not again[0].image.flags.writeable
    assert (second.stats().loaded, second.stats().decoded, second.stats().hits) == (2, 1, 2)


def test_prefetched_frames_are_there_when_requested(video: Video) -> None:
    store, path = FrameStore(), video("h264_b_frames")
    assert asyncio.run(prefetch(store, path, [1, 2, 2, 30])) == 3
    assert store.stats().requested == 0 and store.stats().decoded == store.stats().prefetched == 3
    assert [number_in(frame.image) for frame in store.frames(path, [2, 30, 31])] == [2, 30, 31]
    store.frames(path, [2])
    stats = store.stats()
    assert (stats.decoded, stats.hits, stats.prefetched, stats.prefetched_used) == (4, 3, 3, 2)


def test_prefetched_frames_take_half_of_a_full_store(video: Video) -> None:
    store, path = FrameStore(StoreConfig(max_bytes=6 * FRAME, workers=1)), video("h264_b_frames")
    store.frames(path, range(6))
    assert asyncio.run(prefetch(store, path, range(10, 20))) == 3
    assert store.stats().evicted == 3
    decoded = store.stats().decoded
    store.frames(path, [3, 4, 5])  # the half that was used last stays
    assert asyncio.run(prefetch(store, path, [10, 11, 12])) == 3
    assert store.stats().decoded == decoded
    # until they are requested, they take no more
    assert asyncio.run(prefetch(store, path, range(20, 30))) == 0
    assert store.stats().evicted == 3
    store.frames(path, [10, 11, 12])
    assert asyncio.run(prefetch(store, path, range(20, 30))) == 3
    assert (store.stats().evicted, store.stats().prefetched, store.stats().prefetched_used) == (6, 6, 3)
    empty = FrameStore(StoreConfig(max_bytes=6 * FRAME, workers=1))
    assert asyncio.run(prefetch(empty, path, range(10, 20))) == 3


def test_failed_prefetches_are_counted(video: Video) -> None:
    store = FrameStore()
    for request in (
        FrameRequest("missing.mp4", [0], prefetch=True),
        FrameRequest("missing.mp4", times=[0.0], prefetch=True),
        FrameRequest(video("h264_b_frames"), [1000], prefetch=True),
    ):
        with pytest.raises(VideoError):
            asyncio.run(store.serve(request))
    assert store.stats().prefetch_errors == 3


def test_requests_go_before_prefetches(video: Video, before_each: BeforeFrame) -> None:
    order: list[int] = []
    before_each(lambda index: (order.append(index), time.sleep(0.02))[0])
    store, path = FrameStore(StoreConfig(workers=1)), video("h264_b_frames")
    store.probe(path)

    async def both() -> int:
        ahead = asyncio.create_task(prefetch(store, path, range(20, 50)))
        while not order:
            await asyncio.sleep(0.001)
        assert number_in((await frames_of(store, path, [1]))[0].image) == 1
        asked = order.index(1)
        assert asked < 20
        return await ahead

    assert asyncio.run(both()) == 30
    assert store.stats().decoded >= 31


def test_decoders_memory_is_reserved_and_given_back(video: Video) -> None:
    paths = [video(name) for name in ("h264_b_frames", "h264_long_gop", "vp9", "hevc")]
    need = max(decoder_bytes(codec, "yuv420p", 1, 1) for codec in ("h264", "vp9", "hevc"))
    store = FrameStore(StoreConfig(decode_bytes=need, workers=4))  # one decoder at a time, none idle

    async def all_of_them() -> None:
        await asyncio.gather(*(frames_of(store, path, [3, 20]) for path in paths * 3))

    asyncio.run(all_of_them())
    assert 0 < store._decoders.budget.held <= need
    assert sum(idle.nbytes for idle in store._decoders._idle.values()) == store._decoders.budget.held
    with pytest.raises(VideoError):
        store.frames(paths[0], [10**6])
    with pytest.raises(VideoError):
        store.frames("missing.mp4", [0])
    store.close()
    assert store._decoders.budget.held == 0


def test_a_video_that_needs_more_than_all_is_refused(video: Video) -> None:
    store = FrameStore(StoreConfig(decode_bytes=10 * 2**20))
    for _ in range(2):
        with pytest.raises(VideoError, match=r"frame_store\.decode_bytes"):
            store.probe(video("h264_b_frames"))
    assert store.stats().errors == 1, "it is remembered"


def test_waiting_for_memory_does_not_count_towards_the_time_limit(video: Video) -> None:
    path = video("h264_b_frames")
    need = decoder_bytes("h264", "yuv420p", 1, 1)
    store = FrameStore(StoreConfig(decode_bytes=need, workers=2, time_limit=2.0))
    store.probe(path)
    store._decoders.budget.acquire(need, lambda seconds: None)  # stands for a decoder that takes long
    threading.Timer(1.5, store._decoders.budget.release, [need]).start()
    assert len(store.frames(path, range(50))) == 50
    store._decoders.budget.acquire(need, lambda seconds: None)
    with pytest.raises(VideoError, match="no memory to decode it in") as caught:
        store.frames(path, [55])
    assert caught.value.reason == "machine" and store.stats().errors == 0


@pytest.mark.parametrize(("rate", "most", "fits"), [(1e9, 20, False), (1.0, 20, True), (1.0, 1, False)])
def test_the_time_limit_grows_with_the_pixels_to_decode(
    video: Video, monkeypatch: pytest.MonkeyPatch, rate: float, most: int, fits: bool
) -> None:
    iter_decoded = PyavReader.iter_decoded

    def slow(self: PyavReader, *arguments: Any) -> Iterator[tuple[int, RgbConverter]]:
        for picture in iter_decoded(self, *arguments):
            time.sleep(0.3)
            yield picture

    monkeypatch.setattr(PyavReader, "iter_decoded", slow)
    monkeypatch.setattr(store_module, "DECODED_PIXELS_A_SECOND", rate)
    monkeypatch.setattr(store_module, "MOST_TIMES_LIMIT", most)
    store, path = FrameStore(StoreConfig(time_limit=0.5)), video("h264_b_frames")
    store.probe(path)
    if fits:
        assert len(store.frames(path, range(12))) == 12
        return
    with pytest.raises(VideoError) as caught:
        store.frames(path, range(12))
    assert caught.value.reason == "timeout"


def test_a_lack_of_memory_is_not_the_videos_fault(video: Video, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> np.ndarray:
        raise MemoryError

    path, store = video("h264_b_frames"), FrameStore()
    with monkeypatch.context() as patched:
        patched.setattr(store_module, "_convert", no_memory)
        with pytest.raises(VideoError, match="no memory left"):
            store.frames(path, [0])
    assert store.stats().errors == 0
    assert len(store.frames(path, [0])) == 1


def test_a_stuck_decoder_keeps_no_memory_from_others(video: Video, monkeypatch: pytest.MonkeyPatch) -> None:
    release, stuck_path = threading.Event(), video("h264_long_gop")
    iter_decoded = PyavReader.iter_decoded

    def stuck(self: PyavReader, *arguments: Any) -> Iterator[tuple[int, RgbConverter]]:
        if self.info.path == stuck_path:
            release.wait(WAIT)
        return iter_decoded(self, *arguments)

    monkeypatch.setattr(PyavReader, "iter_decoded", stuck)
    monkeypatch.setattr(workers_module, "GRACE_SECONDS", 0.1)
    store = FrameStore(StoreConfig(workers=1, time_limit=1.0, decode_bytes=decoder_bytes("h264", "yuv420p", 1, 1)))
    with pytest.raises(VideoError) as caught:
        store.frames(stuck_path, [3])
    assert caught.value.reason == "timeout"
    assert len(store.frames(video("h264_b_frames"), range(10))) == 10
    release.set()
    end = time.monotonic() + WAIT
    while any(store._stuck.values()) and time.monotonic() < end:
        time.sleep(0.01)
    assert (
        sum(idle.nbytes for idle in store._decoders._idle.values())
        == store._decoders.budget.held
        <= store._decoders.budget.limit
    )
    store.close()
    assert store._decoders.budget.held == 0
