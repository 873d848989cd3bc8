from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers import Qwen2VLImageProcessor
from verl.utils import hf_processor

from agentic_video.training.model_inputs import image_inputs, image_patches, image_sizes, model_inputs, rope_positions
from agentic_video.types.frame import Frame
from tests.training.workers import make_worker, trained_inputs

PROCESSOR = Qwen2VLImageProcessor(min_pixels=784, max_pixels=100_352)


def picture(seed: int, width: int = 56, height: int = 28) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def frame(seed: int, width: int = 56, height: int = 28) -> Frame:
    return Frame(seed, 0.0, picture(seed, width, height))


PROCESSORS = {
    "qwen2_5_vl": PROCESSOR,
    "qwen3_vl": Qwen2VLImageProcessor(
        patch_size=16, size={"shortest_edge": 1024, "longest_edge": 131_072}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    ),
}


@pytest.mark.parametrize("family", PROCESSORS)
def test_patches_and_sizes_are_the_processor_s_own(family: str) -> None:
    """Of images as a store gives them, and of some that the processor resizes: too small, too large, of odd sides."""
    processor = PROCESSORS[family]
    sizes = [(448, 224), (28, 28), (448, 224), (30, 45), (1000, 700), (32, 64)]
    images = [picture(number, *size) for number, size in enumerate(sizes)]
    expected = processor(images=[Image.fromarray(one) for one in images], return_tensors="pt")
    patches = image_patches(processor, {str(number): one for number, one in enumerate(images)})
    assert list(patches) == ["0", "1", "2", "3", "4", "5"]
    assert torch.equal(torch.cat(list(patches.values())), expected["pixel_values"])
    assert expected["pixel_values"].dtype == torch.float32
    found = image_sizes(processor, sizes)
    assert torch.equal(found["image_grid_thw"], expected["image_grid_thw"])
    assert found["images_seqlens"].tolist() == [len(one) for one in patches.values()]


@given(width=st.integers(20, 3000), height=st.integers(20, 3000), family=st.sampled_from(sorted(PROCESSORS)))
def test_sizes_agree_with_the_placeholders(width: int, height: int, family: str) -> None:
    """The prompt's placeholders are counted by the processor's own method."""
    if max(width, height) / min(width, height) > 100:
        return
    processor = PROCESSORS[family]
    (patches,) = image_sizes(processor, [(width, height)])["images_seqlens"].tolist()
    assert patches == processor.get_number_of_image_patches(height, width, {})


def test_a_sequence_without_images_has_no_inputs() -> None:
    assert image_inputs([], []) == image_sizes(PROCESSOR, []) == image_patches(PROCESSOR, {}) == {}


def test_images_in_pieces_are_the_images_together() -> None:
    images = {str(number): picture(number, *size) for number, size in enumerate([(56, 28), (84, 56), (28, 28)])}
    whole = image_patches(PROCESSOR, images)
    grids = image_sizes(PROCESSOR, [(56, 28), (84, 56), (28, 28)])
    joined = image_inputs(list(whole.values()), list(grids["image_grid_thw"].split(1)))
    assert torch.equal(joined["pixel_values"], torch.cat(list(whole.values())))
    # patches of 14 pixels: 56 x 28 has 4 x 2, 84 x 56 has 6 x 4, 28 x 28 has 2 x 2
    assert joined["images_seqlens"].tolist() == grids["images_seqlens"].tolist() == [8, 24, 4]


def test_positions_by_hand(checkpoint: Path) -> None:
    processor = hf_processor(str(checkpoint))
    pad = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    start = processor.tokenizer.convert_tokens_to_ids("<|vision_start|>")
    # a text token, the start of an image, an image of 2 x 1 merged patches, a text token
    ids = torch.tensor([5, start, pad, pad, 6])
    positions = rope_positions(processor, ids, {"image_grid_thw": torch.tensor([[1, 2, 4]])})
    assert positions.tolist() == [
        [0, 1, 2, 3, 4],  # of the text alone
        [0, 1, 2, 2, 4],  # time, height, width: the image begins at 2, and what follows goes on from its largest
        [0, 1, 2, 2, 4],
        [0, 1, 2, 3, 4],
    ]


@pytest.mark.parametrize("count", [0, 2])
def test_a_recorded_sequence_has_a_rollouts_inputs(
    count: int, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker(monkeypatch, checkpoint)
    pad = worker.processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    ids = [1, *[pad, 3] * count, 2]
    frames = [frame(number, 28, 28) for number in range(count)]
    positions, inputs = model_inputs(worker.processor, torch.tensor(ids), frames)
    trained, expected = trained_inputs(worker, ids, frames)
    assert torch.equal(positions, trained) and positions.shape == (4, len(ids))
    assert set(inputs) == set(expected) == ({"pixel_values", "image_grid_thw", "images_seqlens"} if count else set())
    for name, value in expected.items():
        assert torch.equal(inputs[name], value), name
