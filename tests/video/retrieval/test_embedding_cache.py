"""Embeddings in memory and on disk."""

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentic_video.video.cache import VideoIdentity, identify
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.retrieval.embedding_cache import Embedding, EmbeddingCache
from agentic_video.video.retrieval.retriever import FrameRetriever
from tests.video.retrieval.degrees import CONFIG, DegreeEncoder, PickySource, run


@pytest.mark.parametrize("max_bytes", [0, 80])
def test_memory_is_bounded(path: str, max_bytes: int) -> None:
    async def use(retriever: FrameRetriever) -> list[float]:
        await retriever.asimilarities(path, range(50), "0")
        return await retriever.asimilarities(path, [0, 60], "0")

    similarities, retriever = run(use, replace(CONFIG, max_bytes=max_bytes))
    assert similarities == pytest.approx([1.0, 0.5], abs=1e-6)
    # a row is two float32: 80 bytes hold ten
    assert retriever.stats().bytes == max_bytes
    # frame 0 was among the first fifty and is gone: it and frame 60 are embedded now
    assert retriever.stats().embedded == 52


def test_the_disk_cache_survives_a_restart(path: str, tmp_path: Path) -> None:
    config = replace(CONFIG, cache_dir=str(tmp_path / "cache"))
    run(lambda retriever: retriever.asimilarities(path, range(20), "0"), config)
    source = PickySource()
    similarities, second = run(lambda retriever: retriever.asimilarities(path, [60, *range(20)], "0"), config, source)
    expected = [0.5, *(math.cos(math.radians(n)) for n in range(20))]
    assert similarities == pytest.approx(expected, abs=1e-6)
    assert (second.stats().embedded, second.stats().disk_hits) == (1, 20)
    assert source.requests == [[60]]
    # the second run added to the file of the first
    assert run(lambda retriever: retriever.asimilarities(path, [60, 19], "0"), config)[1].stats().disk_hits == 2
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".npz"]


def test_a_changed_file_or_another_model_is_embedded_again(path: str, tmp_path: Path) -> None:
    config = replace(CONFIG, cache_dir=str(tmp_path / "cache"))

    def ask(encoder: DegreeEncoder) -> tuple[int, int]:
        stats = run(lambda retriever: retriever.asimilarities(path, [1, 2], "0"), config, encoder=encoder)[1].stats()
        return stats.embedded, stats.disk_hits

    assert ask(DegreeEncoder()) == (2, 0)
    assert ask(DegreeEncoder("another")) == (2, 0)
    os.utime(path, (1, 1))
    assert ask(DegreeEncoder()) == (2, 0)
    assert ask(DegreeEncoder()) == (0, 2)


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    start = content.index(b"rows.npy") + 160  # within the rows, beyond their header
    content[start] ^= 0xFF
    file.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "empty": lambda file: file.write_bytes(b""),
    "flipped": _flip,
    "pickled": lambda file: np.savez(file, indices=np.array([1, 2]), rows=np.array([{}, {}])),
    "other keys": lambda file: np.savez(file, rows=np.ones((2, 2), np.float32)),
    "not normalised": lambda file: np.savez(file, indices=np.array([1, 2]), rows=np.ones((2, 2), np.float32)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cache_file_is_made_again(path: str, tmp_path: Path, damage: str) -> None:
    config = replace(CONFIG, cache_dir=str(tmp_path / "cache"))

    def ask() -> tuple[list[float], FrameRetriever]:
        return run(lambda retriever: retriever.asimilarities(path, [0, 60], "0"), config)

    ask()
    [file] = (tmp_path / "cache").iterdir()
    DAMAGE[damage](file)
    similarities, retriever = ask()
    assert similarities == pytest.approx([1.0, 0.5], abs=1e-6)
    assert retriever.stats().embedded == 2 and retriever.stats().disk_errors > 0
    assert ask()[1].stats().disk_hits == 2


def test_the_folder_is_bounded_oldest_out(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache = EmbeddingCache(RetrievalConfig(cache_dir=str(folder), cache_bytes=5000), "degrees")
    radians = np.radians(range(40)).astype(np.float32)
    rows: dict[int, Embedding] = dict(enumerate(np.stack([np.cos(radians), np.sin(radians)], axis=1)))
    videos = []
    for number in range(12):
        video = tmp_path / f"{number}.mp4"
        video.write_bytes(b"video")
        videos.append(identify(str(video)))
        cache.save(videos[-1], rows)
        for file in folder.iterdir():  # a clear order, whatever the clock's grain
            if file.stat().st_mtime > 10_000:
                os.utime(file, (number, number))
    sizes = [file.stat().st_size for file in folder.iterdir()]
    assert 0 < sum(sizes) <= 5000 and max(sizes) > 1000 and len(sizes) >= 2
    kept = cache.load(videos[-1], range(40))
    assert kept.keys() == rows.keys() and all(np.array_equal(kept[index], rows[index]) for index in rows)
    assert cache.load(videos[0], range(40)) == {} and cache.disk_errors == 0


def test_a_files_name_follows_model_path_time_and_size(tmp_path: Path) -> None:
    # folders of earlier runs stay usable, whatever inodes a node sees
    cache = EmbeddingCache(RetrievalConfig(cache_dir=str(tmp_path)), "model")
    cache.save(VideoIdentity("/videos/a.mp4", 1, 7, 5), {0: np.array([1, 0], np.float32)})
    name = hashlib.sha256(b'["model", "/videos/a.mp4", 7, 5]').hexdigest()
    assert [file.name for file in tmp_path.iterdir()] == [f"{name}.npz"]


def test_a_folder_that_cannot_be_written_costs_only_the_cache(path: str) -> None:
    similarities, retriever = run(
        lambda retriever: retriever.asimilarities(path, [0, 60], "0"), replace(CONFIG, cache_dir=f"{path}/cache")
    )
    assert similarities == pytest.approx([1.0, 0.5], abs=1e-6)
    assert retriever.stats().disk_errors > 0
