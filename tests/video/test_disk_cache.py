"""Frames on disk: found again or decoded again, never wrong, never in the way."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentic_video.types.frame import image_key
from agentic_video.video.disk_cache import DiskCache, FrameAddress
from agentic_video.video.identity import VideoIdentity

ADDRESS = FrameAddress(VideoIdentity("a.mp4", 7, 1, 100), 3, (20, 10), "pyav")
FILE = 80 + 20 * 10 * 3
"""Bytes of a frame's file."""


def picture(value: int) -> np.ndarray:
    return np.full((10, 20, 3), value, np.uint8)


def put(cache: DiskCache, address: FrameAddress, value: int) -> None:
    cache.put(address, picture(value), image_key(picture(value)))
    cache.flush()


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_was_put_is_found_by_another_process(tmp_path: Path) -> None:
    put(DiskCache(str(tmp_path), 10**6), ADDRESS, 5)
    found = DiskCache(str(tmp_path), 10**6).get(ADDRESS)
    assert found is not None
    image, key = found
    assert np.array_equal(image, picture(5)) and key == image_key(image) and not image.flags.writeable
    assert [path.stat().st_size for path in files(tmp_path)] == [FILE]


def test_another_file_frame_size_or_backend_is_another_frame(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 10**6)
    put(cache, ADDRESS, 5)
    for other in (
        replace(ADDRESS, video=replace(ADDRESS.video, mtime_ns=2)),
        replace(ADDRESS, index=4),
        replace(ADDRESS, size=None),
        replace(ADDRESS, backend="decord"),
    ):
        assert cache.get(other) is None


@pytest.mark.parametrize("damage", [b"", b"x" * FILE, b"frame1 " + b"y" * 300])
def test_a_damaged_file_is_dropped(tmp_path: Path, damage: bytes) -> None:
    cache = DiskCache(str(tmp_path), 10**6)
    put(cache, ADDRESS, 5)
    [file] = files(tmp_path)
    file.write_bytes(damage)
    assert cache.get(ADDRESS) is None and files(tmp_path) == []


def test_a_flipped_bit_is_seen(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 10**6)
    put(cache, ADDRESS, 5)
    [file] = files(tmp_path)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert cache.get(ADDRESS) is None and files(tmp_path) == []


def test_the_least_recently_used_make_room(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 20 * FILE)
    addresses = [replace(ADDRESS, index=index) for index in range(60)]
    for index, address in enumerate(addresses):
        put(cache, address, index)
        os.utime(cache._path(address), (index, index))
        if index:
            assert cache.get(addresses[0]) is not None  # used last, every time
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 21.5 * FILE
    assert cache.get(addresses[59]) is not None and cache.get(addresses[1]) is None


def test_a_folder_that_cannot_be_written_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no folder")
    cache = DiskCache(str(tmp_path / "file"), 10**6)
    with caplog.at_level(logging.WARNING):
        for index in range(3):
            put(cache, replace(ADDRESS, index=index), 5)
    assert cache.get(ADDRESS) is None
    [record] = caplog.records
    assert "no longer kept on disk" in record.getMessage() and "disk_folder" in record.getMessage()
