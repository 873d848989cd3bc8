from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Qwen2VLImageProcessor
from verl.utils import hf_processor

from agentic_video.training import model_inputs as model_inputs_module
from agentic_video.training.agent_loop import FRAME_KEYS
from agentic_video.training.model_inputs import (
    PatchCache,
    image_inputs,
    model_inputs,
    patch_cache_bytes,
    rope_positions,
)
from agentic_video.types.frame import Frame
from tests.config.configs import composed
from tests.training.workers import make_worker

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
    assert PatchCache(PROCESSOR).inputs([], []) == image_inputs([], []) == {}


def test_bytes_are_bounded() -> None:
    one = PROCESSOR(images=[image(0)], return_tensors="pt")["pixel_values"].nbytes
    cache = PatchCache(PROCESSOR, max_bytes=2 * one)
    for number in range(5):
        cache.inputs([image(number)], [number])
    assert cache.num_bytes == 2 * one
    assert [number in cache for number in range(5)] == [False, False, False, True, True]
    cache.inputs([image(3)], [3])  # used again: 4 is the next to go
    cache.inputs([image(5)], [5])
    assert 3 in cache and 4 not in cache
    images = [image(number) for number in range(5)]
    inputs = cache.inputs(images, list(range(5)))  # more at once than are kept
    assert torch.equal(inputs["pixel_values"], PROCESSOR(images=images, return_tensors="pt")["pixel_values"])
    assert cache.num_bytes <= 2 * one


def test_images_in_pieces_are_the_images_together() -> None:
    images = [image(0), image(1, 84, 56), image(2, 28, 28)]
    whole = PatchCache(PROCESSOR).inputs(images, range(3))
    pieces = [PatchCache(PROCESSOR).inputs(some, range(len(some))) for some in (images[:1], images[1:])]
    joined = image_inputs([one["pixel_values"] for one in pieces], [one["image_grid_thw"] for one in pieces])
    assert set(joined) == set(whole)
    for name, value in whole.items():
        assert torch.equal(joined[name], value), name


@pytest.mark.parametrize(
    ("gib", "nodes", "workers", "expected"),
    [
        (2048, 2, 64, 4 * 2**30),  # 128 GiB of caches for 32 workers a node
        (2048, 2, 3, 8 * 2**30),  # two workers on the fuller node: as much as one may have
        (1024, 2, 1000, 2**28),
        (16, 1, 1, 2**30),
        (160, 1, 3, 10 * 2**30 // 3),
    ],
)
def test_a_cache_has_its_part_of_its_node(
    gib: int, nodes: int, workers: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_inputs_module, "memory_limit", lambda: gib * 2**30)
    sizes = (f"trainer.nnodes={nodes}", f"actor_rollout_ref.rollout.agent.num_workers={workers}")
    assert patch_cache_bytes(composed("videozoomer", "laptop", "data.train_files=none", *sizes)) == expected


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
    ids = torch.tensor([1, *[pad, 3] * count, 2])
    images = [image(number, 28, 28) for number in range(count)]
    frames = [Frame(number, 0.0, np.asarray(one)) for number, one in enumerate(images)]
    positions, inputs = model_inputs(worker.processor, ids, frames)
    output = SimpleNamespace(multi_modal_data={"images": images, FRAME_KEYS: list(range(count))})
    expected = worker._compute_multi_modal_inputs(output, ids)
    rows = worker._compute_position_ids(ids[None], torch.ones_like(ids)[None], expected)
    assert torch.equal(positions, rows.squeeze(0))
    assert set(inputs) == set(expected)
    for name, value in expected.items():
        assert torch.equal(inputs[name], value), name
