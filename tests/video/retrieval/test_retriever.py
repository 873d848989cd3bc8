"""Retrieval of frames: what is computed, how often, and what is kept, mostly with embeddings that are known."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from agentic_video.tools.base import Video
from agentic_video.types.frame import Frame
from agentic_video.video.errors import VideoError
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.retrieval.embedding_cache import identify
from agentic_video.video.retrieval.encoder import ClipEncoder
from agentic_video.video.retrieval.retriever import FrameRetriever, clean_prompt
from agentic_video.video.sizes import resize
from tests.conftest import MemorySource
from tests.video.retrieval.clip_models import write_clip

T = TypeVar("T")

CONFIG = RetrievalConfig(batch_size=8, wait_ms=20.0)


class DegreeEncoder:
    """Embeds a grey picture as the direction of so many degrees, and a text by the number that it is."""

    def __init__(self, identity: str = "degrees") -> None:
        self.identity = identity
        self.batches: list[int] = []
        self.text_batches: list[int] = []
        self.shapes: set[tuple[int, ...]] = set()
        self.fail = False

    def frame_size(self, width: int, height: int) -> tuple[int, int]:
        return width // 2, height // 2

    def images(self, images: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        if self.fail:
            raise RuntimeError("out of memory")
        self.batches.append(len(images))
        self.shapes |= {image.shape for image in images}
        return self._directions([float(image[0, 0, 0]) for image in images])

    def texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.text_batches.append(len(texts))
        return self._directions([float(text) for text in texts])

    @staticmethod
    def _directions(degrees: Sequence[float]) -> npt.NDArray[np.float32]:
        radians = np.radians(degrees)
        return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


class PickySource(MemorySource):
    """Keeps how many frames each request was for; some frames can't be read."""

    def __init__(self, damaged: Sequence[int] = (), reason: Any = "corrupt", seconds: float = 0.0) -> None:
        super().__init__(size=(64, 48))
        self.damaged, self.reason, self.seconds = frozenset(damaged), reason, seconds
        self.requests: list[list[int]] = []

    async def aframes(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> list[Frame]:
        self.requests.append(list(indices))
        await asyncio.sleep(self.seconds)
        if self.damaged.intersection(indices):
            raise VideoError(path, self.reason, "made to fail")
        return await super().aframes(path, indices, size)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file to have an identity; its frames come from a source in memory."""
    file = tmp_path / "video.mp4"
    file.write_bytes(b"video")
    return str(file)


def run(
    use: Callable[[FrameRetriever], Coroutine[Any, Any, T]],
    config: RetrievalConfig = CONFIG,
    source: MemorySource | None = None,
    encoder: DegreeEncoder | None = None,
) -> tuple[T, FrameRetriever]:
    """Uses a new retriever to its end, last write included."""

    async def main() -> tuple[T, FrameRetriever]:
        retriever = FrameRetriever(source or PickySource(), encoder or DegreeEncoder(), config)
        try:
            return await use(retriever), retriever
        finally:
            await retriever.aclose()

    return asyncio.run(main())


# --- what is computed


def test_similarities_are_cosines_in_the_asked_order(path: str) -> None:
    similarities, retriever = run(lambda one: one.asimilarities(path, [90, 30, 90, 0], "90"))
    # 0, 60, 0 and 90 degrees apart
    assert similarities == pytest.approx([1.0, 0.5, 1.0, 0.0], abs=1e-6)
    assert all(type(similarity) is float for similarity in similarities)
    stats = retriever.stats()
    assert (stats.asked, stats.embedded, stats.hits, stats.texts) == (4, 3, 1, 1)


def test_nothing_asked_costs_nothing(path: str) -> None:
    similarities, retriever = run(lambda one: one.asimilarities(path, [], "90"))
    assert similarities == [] and retriever.stats().batches == 0


def test_a_video_finds_its_best_frames(path: str) -> None:
    source = PickySource()

    async def use(retriever: FrameRetriever) -> list[int]:
        video = await Video.open(path, source, retriever)
        return await video.best_matches("45", range(0, 100, 10), 3)

    # 40 and 50 are 5 degrees away, 30 and 60 15: the earlier of equals wins
    assert run(use, source=source)[0] == [30, 40, 50]


def test_frames_come_small_and_a_few_at_a_time(path: str) -> None:
    source, encoder = PickySource(), DegreeEncoder()
    run(lambda one: one.asimilarities(path, range(30), "0"), source=source, encoder=encoder)
    assert sorted(map(len, source.requests)) == [6, 8, 8, 8]
    assert encoder.shapes == {(24, 32, 3)}
    assert max(encoder.batches) <= 8 and sum(encoder.batches) == 30


# --- how often


def test_concurrent_requests_embed_each_frame_once(path: str) -> None:
    source, encoder = PickySource(seconds=0.02), DegreeEncoder()

    async def use(retriever: FrameRetriever) -> list[list[float]]:
        return await asyncio.gather(*(retriever.asimilarities(path, range(64), str(n)) for n in range(16)))

    answers, retriever = run(use, source=source, encoder=encoder)
    assert source.requested == sum(encoder.batches) == 64
    for number, answer in enumerate(answers):
        assert answer == pytest.approx([math.cos(math.radians(n - number)) for n in range(64)], abs=1e-5)
    stats = retriever.stats()
    assert (stats.asked, stats.embedded, stats.hits) == (1024, 64, 960)


def test_small_requests_share_forward_passes(path: str) -> None:
    encoder = DegreeEncoder()

    async def use(retriever: FrameRetriever) -> None:
        await asyncio.gather(*(retriever.asimilarities(path, [n], str(n)) for n in range(8)))

    run(use, replace(CONFIG, wait_ms=500.0), encoder=encoder)
    assert encoder.batches == encoder.text_batches == [8]


def test_a_full_batch_does_not_wait(path: str) -> None:
    started = time.monotonic()
    config = replace(CONFIG, batch_size=1, wait_ms=60_000.0)
    run(lambda one: one.asimilarities(path, range(4), "0"), config)
    assert time.monotonic() - started < 10


def test_a_text_is_embedded_once_while_it_is_remembered(path: str) -> None:
    async def use(retriever: FrameRetriever) -> list[int]:
        counts = []
        for prompt in ["1", "1", "2", "3", "1"]:
            await asyncio.gather(*(retriever.asimilarities(path, [0], prompt) for _ in range(3)))
            counts.append(retriever.stats().texts)
        return counts

    # two are remembered: 3 drives 1 out
    assert run(use, replace(CONFIG, max_texts=2))[0] == [1, 1, 2, 3, 4]


def test_a_cancelled_rollout_takes_nothing_from_the_others(path: str) -> None:
    source = PickySource(seconds=0.1)

    async def use(retriever: FrameRetriever) -> list[float]:
        first = asyncio.create_task(retriever.asimilarities(path, [0, 60], "0"))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(retriever.asimilarities(path, [0, 60], "0"))
        await asyncio.sleep(0.01)
        first.cancel()
        return await second

    similarities, _ = run(use, replace(CONFIG, wait_ms=1.0), source=source)
    assert similarities == pytest.approx([1.0, 0.5], abs=1e-6)
    assert source.requested == 2


# --- what fails


def test_a_missing_video_is_a_video_error(tmp_path: Path) -> None:
    with pytest.raises(VideoError) as caught:
        run(lambda one: one.asimilarities(str(tmp_path / "none.mp4"), [0], "0"))
    assert caught.value.reason == "missing"


def test_a_broken_video_is_a_video_error(tmp_path: Path) -> None:
    from agentic_video.video.store import FrameStore

    broken = tmp_path / "broken.mp4"
    broken.write_bytes(os.urandom(2000))

    async def main() -> None:
        retriever = FrameRetriever(FrameStore(), DegreeEncoder(), CONFIG)
        for _ in range(2):
            with pytest.raises(VideoError):
                await retriever.asimilarities(str(broken), range(20), "0")

    asyncio.run(main())


def test_a_damaged_frame_fails_only_those_who_want_it(path: str) -> None:
    source = PickySource(damaged=[7], seconds=0.05)

    async def use(retriever: FrameRetriever) -> list[Any]:
        wants_it = asyncio.create_task(retriever.asimilarities(path, [0, 7], "0"))
        await asyncio.sleep(0.02)
        return await asyncio.gather(wants_it, retriever.asimilarities(path, [0], "0"), return_exceptions=True)

    (failed, fine), retriever = run(use, replace(CONFIG, wait_ms=1.0), source=source)
    assert isinstance(failed, VideoError) and failed.reason == "corrupt"
    assert fine == pytest.approx([1.0])
    assert not retriever._pending


def test_a_decoder_that_hangs_is_not_tried_by_each_in_turn(path: str) -> None:
    source = PickySource(damaged=[7], reason="timeout", seconds=0.2)

    async def use(retriever: FrameRetriever) -> list[Any]:
        asked = (retriever.asimilarities(path, [7], "0") for _ in range(6))
        return await asyncio.gather(*asked, return_exceptions=True)

    answers, _ = run(use, source=source)
    assert [getattr(answer, "reason", None) for answer in answers] == ["timeout"] * 6
    assert len(source.requests) == 1


def test_an_encoder_that_fails_can_recover(path: str) -> None:
    encoder = DegreeEncoder()

    async def use(retriever: FrameRetriever) -> list[float]:
        encoder.fail = True
        with pytest.raises(RuntimeError, match="out of memory"):
            await retriever.asimilarities(path, [0, 60], "0")
        encoder.fail = False
        return await retriever.asimilarities(path, [0, 60], "0")

    assert run(use, encoder=encoder)[0] == pytest.approx([1.0, 0.5], abs=1e-6)


# --- what is kept


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
    run(lambda one: one.asimilarities(path, range(20), "0"), config)
    source = PickySource()
    similarities, second = run(lambda one: one.asimilarities(path, [60, *range(20)], "0"), config, source)
    expected = [0.5, *(math.cos(math.radians(n)) for n in range(20))]
    assert similarities == pytest.approx(expected, abs=1e-6)
    assert (second.stats().embedded, second.stats().disk_hits) == (1, 20)
    assert source.requests == [[60]]
    # what the second run made was added to what the first had written
    assert run(lambda one: one.asimilarities(path, [60, 19], "0"), config)[1].stats().disk_hits == 2
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".npz"]


def test_a_changed_file_or_another_model_is_embedded_anew(path: str, tmp_path: Path) -> None:
    config = replace(CONFIG, cache_dir=str(tmp_path / "cache"))

    def ask(encoder: DegreeEncoder) -> tuple[int, int]:
        stats = run(lambda one: one.asimilarities(path, [1, 2], "0"), config, encoder=encoder)[1].stats()
        return stats.embedded, stats.disk_hits

    assert ask(DegreeEncoder()) == (2, 0)
    assert ask(DegreeEncoder("another")) == (2, 0)
    os.utime(path, (1, 1))
    assert ask(DegreeEncoder()) == (2, 0)
    assert ask(DegreeEncoder()) == (0, 2)


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    place = content.index(b"rows.npy") + 160  # within the rows, beyond their header
    content[place] ^= 0xFF
    file.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:300]),
    "noise": lambda file: file.write_bytes(bytes(range(256)) * 4),
    "flipped": _flip,
    "pickled": lambda file: np.savez(file, indices=np.array([1, 2]), rows=np.array([{}, {}])),
    "other keys": lambda file: np.savez(file, rows=np.ones((2, 2), np.float32)),
    "other lengths": lambda file: np.savez(file, indices=np.array([1]), rows=np.eye(2, dtype=np.float32)),
    "not normalised": lambda file: np.savez(file, indices=np.array([1, 2]), rows=np.ones((2, 2), np.float32)),
    "not finite": lambda file: np.savez(file, indices=np.array([1, 2]), rows=np.full((2, 2), np.nan, np.float32)),
    "other type": lambda file: np.savez(file, indices=np.array([1, 2]), rows=np.eye(2)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cache_file_is_made_anew(path: str, tmp_path: Path, damage: str) -> None:
    config = replace(CONFIG, cache_dir=str(tmp_path / "cache"))

    def ask() -> tuple[list[float], FrameRetriever]:
        return run(lambda one: one.asimilarities(path, [0, 60], "0"), config)

    ask()
    [file] = (tmp_path / "cache").iterdir()
    DAMAGE[damage](file)
    similarities, retriever = ask()
    assert similarities == pytest.approx([1.0, 0.5], abs=1e-6)
    assert retriever.stats().embedded == 2 and retriever.stats().disk_errors > 0
    assert ask()[1].stats().disk_hits == 2


def test_the_folder_is_bounded_oldest_out(tmp_path: Path) -> None:
    videos = []
    for number in range(12):
        videos.append(tmp_path / f"{number}.mp4")
        videos[-1].write_bytes(b"video")
    folder = tmp_path / "cache"
    config = replace(CONFIG, cache_dir=str(folder), cache_bytes=5000)

    async def use(retriever: FrameRetriever) -> None:
        for number, video in enumerate(videos):
            await retriever.asimilarities(str(video), range(40), "0")
            while retriever._tasks:
                await asyncio.sleep(0.001)
            for file in folder.iterdir():  # a clear order, whatever the clock's grain
                if file.stat().st_mtime > 10_000:
                    os.utime(file, (number, number))

    run(use, config)
    sizes = [file.stat().st_size for file in folder.iterdir()]
    assert 0 < sum(sizes) <= 5000 and max(sizes) > 1000
    kept = {file.name for file in folder.iterdir()}
    _, again = run(lambda one: one.asimilarities(str(videos[-1]), range(40), "0"), config)
    assert again.stats().disk_hits == 40
    _, again = run(lambda one: one.asimilarities(str(videos[0]), range(40), "0"), config)
    assert again.stats().disk_hits == 0 and len(kept) >= 2


def test_a_file_beyond_the_folders_bound_is_not_written(path: str, tmp_path: Path) -> None:
    config = replace(CONFIG, cache_dir=str(tmp_path / "cache"), cache_bytes=100)
    _, retriever = run(lambda one: one.asimilarities(path, range(40), "0"), config)
    assert not list((tmp_path / "cache").iterdir()) and retriever.stats().disk_errors == 0


def test_a_folder_that_cannot_be_written_costs_only_the_cache(path: str) -> None:
    similarities, retriever = run(
        lambda one: one.asimilarities(path, [0, 60], "0"), replace(CONFIG, cache_dir=f"{path}/cache")
    )
    assert similarities == pytest.approx([1.0, 0.5], abs=1e-6)
    assert retriever.stats().disk_errors > 0


# --- prompts


HOSTILE = {
    "long": "red " * 250_000,
    "one word": "x" * 10**6,
    "nul": "red\x00green\x00",
    "emoji": "\U0001f600" * 5000,
    "family": "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 300,
    "surrogate": "red \ud800\udfff",
    "special tokens": "<start_of_text><end_of_text><pad></s><|endoftext|> red",
    "entities": "&amp;" * 100 + "&#0;&#x110000;",
    "mixed": "\u202e\ufeff\u0301" * 200 + "\r\n\t red",
    "empty": "",
    "blank": " \n\t ",
    "json": '{"prompt": ["red"]}',
}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> ClipEncoder:
    """A CLIP with random weights and CLIP's own tokenizer."""
    return ClipEncoder(RetrievalConfig(model=write_clip(tmp_path_factory.mktemp("clip")), device="cpu"))


@pytest.mark.parametrize("prompt", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_prompts_break_nothing(clip: ClipEncoder, path: str, prompt: str) -> None:
    started = time.monotonic()

    async def main() -> list[float]:
        return await FrameRetriever(PickySource(), clip, CONFIG).asimilarities(path, [0, 100], prompt)

    similarities = asyncio.run(main())
    assert len(similarities) == 2 and all(-1.001 < similarity < 1.001 for similarity in similarities)
    assert time.monotonic() - started < 5


@given(st.text(st.characters(codec=None), max_size=400), st.integers(1, 300))
def test_cleaned_prompts_are_short_and_encodable(prompt: str, max_chars: int) -> None:
    cleaned = clean_prompt(prompt, max_chars)
    assert len(cleaned) <= max_chars and cleaned == cleaned.strip()
    assert cleaned.encode().decode() == cleaned and "\x00" not in cleaned


def test_cleaning_keeps_words() -> None:
    assert clean_prompt("  a red\n\tflash\x00near\ud800 it ", 100) == "a red flash near it"
    assert clean_prompt("a red flash", 5) == "a red"


def test_the_tokenizers_memory_is_bounded(clip: ClipEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentic_video.video.retrieval.encoder._TOKENIZER_WORDS", 20)
    before = clip.texts(["red <end_of_text>"])
    for number in range(30):
        clip.texts([f"w{chr(97 + number // 26)}{chr(97 + number % 26)}q"])
    assert len(clip._tokenizer.cache) <= 25
    assert np.array_equal(clip.texts(["red <end_of_text>"]), before)


# --- open_clip


def test_embeddings_have_length_one(clip: ClipEncoder) -> None:
    images = [np.full((28, 28, 3), value, np.uint8) for value in (0, 128, 255)]
    for rows in (clip.images(images), clip.texts(["red", "a green flash"])):
        assert rows.dtype == np.float32
        assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(len(rows)), abs=1e-5)


@pytest.mark.parametrize("mode", ["squash", "shortest", "longest"])
@pytest.mark.parametrize("size", [(64, 48), (48, 64), (101, 37), (28, 28), (20, 10)])
def test_frames_at_the_models_size_are_prepared_as_whole_ones(tmp_path: Path, mode: str, size: tuple[int, int]) -> None:
    encoder = ClipEncoder(RetrievalConfig(model=write_clip(tmp_path, resize_mode=mode), device="cpu"))
    picture = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    small = resize(picture, *encoder.frame_size(*size))
    whole, reduced = (encoder._transform(Image.fromarray(image)) for image in (picture, small))
    assert whole.shape == (3, 28, 28)
    assert np.array_equal(whole.numpy(), reduced.numpy())


def test_identity_follows_weights_and_preparation(tmp_path: Path, clip: ClipEncoder) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    def identity(folder: str, **preprocess: Any) -> str:
        return ClipEncoder(RetrievalConfig(model=write_clip(tmp_path / folder, **preprocess), device="cpu")).identity

    assert identity("same") == clip.identity
    assert identity("other", mean=[0.1, 0.1, 0.1]) != clip.identity
    weights = load_file(tmp_path / "same" / "open_clip_model.safetensors")
    weights["logit_scale"] = weights["logit_scale"] + torch.tensor(1e-3)
    save_file(weights, str(tmp_path / "same" / "open_clip_model.safetensors"))
    changed = ClipEncoder(RetrievalConfig(model=f"local-dir:{tmp_path / 'same'}", device="cpu"))
    assert changed.identity != clip.identity


def test_a_model_without_weights_is_refused(tmp_path: Path) -> None:
    name = write_clip(tmp_path)
    (tmp_path / "open_clip_model.safetensors").unlink()
    with pytest.raises(RuntimeError):
        ClipEncoder(RetrievalConfig(model=name, device="cpu"))
    with pytest.raises(ValueError, match=r"agentic_video\.retrieval\.model"):
        ClipEncoder(RetrievalConfig())


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    name = write_clip(tmp_path)
    weights = load_file(tmp_path / "open_clip_model.safetensors")
    weights["visual.proj"] = torch.full_like(weights["visual.proj"], float("nan"))
    save_file(weights, str(tmp_path / "open_clip_model.safetensors"))
    with pytest.raises(RuntimeError, match="not finite"):
        ClipEncoder(RetrievalConfig(model=name, device="cpu")).images([np.zeros((28, 28, 3), np.uint8)])


@pytest.mark.gpu
def test_a_gpu_gives_what_the_cpu_gives(tmp_path: Path, clip: ClipEncoder) -> None:
    on_gpu = ClipEncoder(RetrievalConfig(model=write_clip(tmp_path), device="auto"))
    assert on_gpu._device.startswith("cuda")
    images = list(np.random.default_rng(0).integers(0, 256, (5, 28, 28, 3), dtype=np.uint8))
    assert on_gpu.images(images) == pytest.approx(clip.images(images), abs=1e-2)
    assert on_gpu.texts(["red"]) == pytest.approx(clip.texts(["red"]), abs=1e-2)


def test_importing_loads_no_model_library() -> None:
    code = (
        "import sys, agentic_video.video.retrieval.retriever; print({'torch', 'open_clip', 'ray'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- config


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"model": "ViT-B-16-SigLIP2"}, "pretrained"),
        ({"model": "local-dir:/models/clip", "pretrained": "webli"}, "pretrained must be empty"),
        ({"device": "gpu"}, "device"),
        ({"device": "cuda:x"}, "device"),
        ({"num_gpus": -0.5}, "num_gpus"),
        ({"num_gpus": float("nan")}, "num_gpus"),
        ({"num_gpus": 0.5, "device": "cpu"}, "num_gpus"),
        ({"batch_size": 0}, "batch_size"),
        ({"threads": 0}, "threads"),
        ({"max_prompt_chars": 0}, "max_prompt_chars"),
        ({"wait_ms": -1.0}, "wait_ms"),
        ({"max_bytes": -1}, "max_bytes"),
        ({"max_texts": -1}, "max_texts"),
        ({"cache_bytes": -1}, "cache_bytes"),
        ({"start_seconds": 0.0}, "start_seconds"),
    ],
)
def test_impossible_settings_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RetrievalConfig(**setting)


def test_a_files_identity(path: str) -> None:
    os.utime(path, ns=(5, 7))
    identity = identify(path)
    assert (identity.path, identity.mtime_ns, identity.size) == (path, 7, 5)
