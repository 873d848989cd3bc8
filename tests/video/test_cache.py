"""Caches: identities of files, bounded memory, frames on disk."""

import logging
import os
import shutil
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.types.frame import image_key
from agentic_video.video.cache import BoundedCache, DiskCache, FrameAddress, VideoIdentity, identify
from agentic_video.video.errors import VideoError

ADDRESS = FrameAddress(VideoIdentity("a.mp4", 7, 1, 100), 3, (200, 100), "pyav")
FRAME = 200 * 100 * 3


def picture(value: int) -> np.ndarray:
    return np.full((100, 200, 3), value, np.uint8)


def put(cache: DiskCache, address: FrameAddress, value: int) -> None:
    cache.put(address, picture(value), image_key(picture(value)))
    cache.flush()


def frame_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.val") if path.is_file()]


def test_a_changed_file_has_another_identity(tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    path.write_bytes(b"video")
    os.utime(path, ns=(5, 7))
    before = identify(str(path))
    assert (before.path, before.mtime_ns, before.size) == (str(path), 7, 5)
    os.utime(path, ns=(5, 8))
    assert identify(str(path)) != before
    os.utime(path, ns=(5, 7))
    assert identify(str(path)) == before
    # another file of the same size and time under the same name
    shutil.copy2(path, tmp_path / "copy")
    os.replace(tmp_path / "copy", path)
    assert identify(str(path)) != before
    with pytest.raises(VideoError) as caught:
        identify(str(tmp_path / "none.mp4"))
    assert caught.value.reason == "missing"


@given(st.integers(0, 30), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12) | st.none()), max_size=40))
def test_a_bounded_cache_behaves_like_a_list_of_sizes(bound: int, steps: list[tuple[int, int | None]]) -> None:
    cache: BoundedCache[int, bytes] = BoundedCache(bound, len)
    held: OrderedDict[int, int] = OrderedDict()
    evicted = 0
    for key, size in steps:
        if size is None:
            value = cache.get(key)
            assert (None if value is None else len(value)) == held.get(key)
            if key in held:
                held.move_to_end(key)
            continue
        cache[key] = bytes(size)
        held.pop(key, None)
        if size <= bound:
            while sum(held.values()) + size > bound:
                held.popitem(last=False)
                evicted += 1
            held[key] = size
        assert set(cache) == set(held)
        assert cache.currsize == sum(held.values()) <= bound and cache.evicted == evicted
    cache.clear()
    assert (len(cache), cache.currsize, cache.evicted) == (0, 0, evicted)


def test_another_process_finds_a_frame_on_disk(tmp_path: Path) -> None:
    put(DiskCache(str(tmp_path), 10**8), ADDRESS, 5)
    found = DiskCache(str(tmp_path), 10**8).get([ADDRESS])[0]
    assert found is not None
    image, key = found
    assert np.array_equal(image, picture(5)) and key == image_key(image) and not image.flags.writeable


@pytest.mark.parametrize(
    "other",
    [
        replace(ADDRESS, video=replace(ADDRESS.video, mtime_ns=2)),
        replace(ADDRESS, index=4),
        replace(ADDRESS, size=None),
        replace(ADDRESS, backend="decord"),
    ],
)
def test_another_file_frame_size_or_backend_is_another_frame(other: FrameAddress, tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 10**8)
    put(cache, ADDRESS, 5)
    assert cache.get([other])[0] is None


@pytest.mark.parametrize("damage", ["empty", "noise", "bit"])
def test_a_damaged_frame_is_dropped(tmp_path: Path, damage: str) -> None:
    cache = DiskCache(str(tmp_path), 10**8)
    put(cache, ADDRESS, 5)
    [file] = frame_files(tmp_path)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes({"empty": b"", "noise": b"x" * 5000, "bit": bytes(data)}[damage])
    assert cache.get([ADDRESS])[0] is None and frame_files(tmp_path) == []
    put(cache, ADDRESS, 5)
    assert cache.get([ADDRESS])[0] is not None


def test_a_value_that_is_no_frame_is_never_unpickled(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 10**8)
    assert cache._cache is not None
    cache._cache.set(ADDRESS.name, {"a": "pickle"})
    assert cache.get([ADDRESS])[0] is None


def test_the_least_recently_used_frames_are_evicted(tmp_path: Path) -> None:
    bound = 40 * FRAME
    cache = DiskCache(str(tmp_path), bound)
    for index in range(120):
        put(cache, replace(ADDRESS, index=index), index)
        assert cache.get([replace(ADDRESS, index=0)])[0] is not None, "used each time"
    assert sum(path.stat().st_size for path in frame_files(tmp_path)) <= bound
    assert cache.get([replace(ADDRESS, index=119)])[0] is not None and cache.get([replace(ADDRESS, index=1)])[0] is None


def test_a_folder_that_cannot_be_written_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no folder")
    with caplog.at_level(logging.WARNING):
        cache = DiskCache(str(tmp_path / "file"), 10**8)
        for index in range(3):
            put(cache, replace(ADDRESS, index=index), 5)
    assert cache.get([ADDRESS])[0] is None
    assert len(caplog.records) == 1 and "disk_folder" in caplog.text
