"""A tiny CLIP of open_clip."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.retrieval.encoder import ClipEncoder
from agentic_video.video.sizes import resize
from tests.video.retrieval.clip_models import write_clip

Transform = Callable[[Image.Image], Any]


@pytest.fixture(scope="module", params=["squash", "shortest", "longest"])
def resizing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[ClipEncoder, Transform]:
    import open_clip

    name = write_clip(tmp_path_factory.mktemp("clip"), resize_mode=request.param)
    _, transform = open_clip.create_model_from_pretrained(name, device="cpu")
    return ClipEncoder(RetrievalConfig(model=name, device="cpu")), transform


@pytest.mark.parametrize("size", [(64, 48), (48, 64), (101, 37), (28, 28), (20, 10)])
def test_frames_at_the_models_size_are_prepared_as_whole_ones(
    resizing: tuple[ClipEncoder, Transform], size: tuple[int, int]
) -> None:
    encoder, transform = resizing
    picture = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    small = resize(picture, *encoder.frame_size(*size))
    whole, reduced = (transform(Image.fromarray(image)) for image in (picture, small))
    assert whole.shape == (3, 28, 28)
    # the transform resizes with PIL, frame stores with torch: 1 or 2 of 255 apart, over a standard deviation of 0.26
    assert np.abs(whole.numpy() - reduced.numpy()).max() < 0.04
    np.testing.assert_allclose(encoder.images([picture]), encoder.images([small]), atol=2e-3)


def test_frames_are_prepared_as_by_the_models_transform(resizing: tuple[ClipEncoder, Transform]) -> None:
    encoder, transform = resizing
    rng = np.random.default_rng(0)
    sizes = [encoder.frame_size(*size) for size in ((64, 48), (48, 64), (101, 37))]
    small = [rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for width, height in sizes]
    expected = np.stack([transform(Image.fromarray(image)).numpy() for image in small])
    # equal, for nothing is left to resize
    np.testing.assert_array_equal(encoder.pixels(small).numpy(), expected)


def test_bfloat16_scores_frames_as_float32_does(tmp_path: Path, clip: ClipEncoder) -> None:
    """As on a GPU; weights are random, so that scores of some pictures are nearly the same."""
    import torch

    half = ClipEncoder(RetrievalConfig(model=write_clip(tmp_path), device="cpu"))
    half.dtype = torch.bfloat16
    colours = [(200, 30, 30), (30, 200, 30), (30, 30, 200), (200, 200, 30), (30, 200, 200), (120, 120, 120)]
    images = [np.full((28, 28, 3), colour, np.uint8) for colour in colours]
    texts = ["red", "a blue square", "nothing"]
    full, rounded = (encoder.texts(texts) @ encoder.images(images).T for encoder in (clip, half))
    assert np.abs(full - rounded).max() < 0.01
    assert (full.argmax(axis=1) == rounded.argmax(axis=1)).all()
    np.testing.assert_allclose(np.linalg.norm(half.images(images), axis=1), 1, atol=1e-6)


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


def test_the_tokenizers_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import open_clip

    name = write_clip(tmp_path)
    tokenizer = open_clip.get_tokenizer(name)
    monkeypatch.setattr(open_clip, "get_tokenizer", lambda _: tokenizer)
    monkeypatch.setattr("agentic_video.video.retrieval.encoder.TOKENIZER_WORDS", 20)
    clip = ClipEncoder(RetrievalConfig(model=name, device="cpu"))
    before = clip.texts(["red <end_of_text>"])
    for number in range(30):
        clip.texts([f"w{chr(97 + number // 26)}{chr(97 + number % 26)}q"])
    assert 1 < len(tokenizer.cache) <= 25
    assert np.array_equal(clip.texts(["red <end_of_text>"]), before)


@pytest.mark.gpu
def test_gpu_and_cpu_agree(tmp_path: Path, clip: ClipEncoder) -> None:
    import torch

    def on_gpus() -> int:
        return sum(torch.cuda.memory_allocated(number) for number in range(torch.cuda.device_count()))

    before = on_gpus()
    on_gpu = ClipEncoder(RetrievalConfig(model=write_clip(tmp_path), device="auto"))
    assert on_gpus() > before
    images = list(np.random.default_rng(0).integers(0, 256, (5, 28, 28, 3), dtype=np.uint8))
    assert on_gpu.images(images) == pytest.approx(clip.images(images), abs=2e-2)
    assert on_gpu.texts(["red"]) == pytest.approx(clip.texts(["red"]), abs=2e-2)
