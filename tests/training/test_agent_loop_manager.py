import numpy as np
import torch
from PIL import Image
from transformers import Qwen2VLImageProcessor

from agentic_video.training.agent_loop_manager import PatchCache

PROCESSOR = Qwen2VLImageProcessor(min_pixels=784, max_pixels=100_352)


def image(seed: int, width: int = 56, height: int = 28) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def test_output_is_the_processors_own() -> None:
    images = [image(0), image(1, 84, 56), image(0), image(2, 28, 28)]
    expected = PROCESSOR(images=images, return_tensors="pt")
    cache = PatchCache(PROCESSOR)
    for _ in range(2):
        inputs = cache.inputs(images, ["a", "b", "a", "c"])
        assert torch.equal(inputs["pixel_values"], expected["pixel_values"])
        assert torch.equal(inputs["image_grid_thw"], expected["image_grid_thw"])
        # patches of 14 pixels: 56 x 28 has 4 x 2, 84 x 56 has 6 x 4, 28 x 28 has 2 x 2
        assert inputs["images_seqlens"].tolist() == [8, 24, 8, 4]
    assert cache.processed == 3


def test_a_sequence_without_images_has_no_inputs() -> None:
    assert PatchCache(PROCESSOR).inputs([], []) == {}


def test_bytes_are_bounded() -> None:
    one = PROCESSOR(images=[image(0)], return_tensors="pt")["pixel_values"].nbytes
    cache = PatchCache(PROCESSOR, max_bytes=2 * one)
    for number in range(5):
        cache.inputs([image(number)], [number])
    assert cache._bytes == 2 * one
    assert list(cache._patches) == [3, 4]
    images = [image(number) for number in range(5)]
    inputs = cache.inputs(images, list(range(5)))  # more at once than are kept
    assert torch.equal(inputs["pixel_values"], PROCESSOR(images=images, return_tensors="pt")["pixel_values"])
    assert cache._bytes <= 2 * one
