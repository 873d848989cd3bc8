from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from agentic_video.toyworld.forward import logits_at, patches, positions
from agentic_video.toyworld.model import FAMILIES, FamilyName, family_of, image_processor, load_checkpoint


def test_fast_forward_equals_the_stock_one(any_checkpoint: Path) -> None:
    model, tokenizer = load_checkpoint(any_checkpoint)
    model.eval()
    family = family_of(model)
    side = FAMILIES[family].frame_side
    rng = np.random.default_rng(0)
    sizes = [(side, side), (2 * side, 2 * side), (side, 2 * side), (side, side)]
    images = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]
    tokens = [height * width // side**2 for height, width in sizes]
    text = "".join(f"a<|vision_start|>{'<|image_pad|>' * count}<|vision_end|>b" for count in tokens) + " it is red"
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    stock = image_processor(family)(images=[Image.fromarray(image) for image in images], return_tensors="pt")
    kinds = (ids == model.config.image_token_id).int()
    with torch.no_grad():
        expected = model(input_ids=ids, mm_token_type_ids=kinds, **stock).logits[0]
        places = positions(model, ids[0].tolist(), images)[:, None]
        fast = logits_at(model, ids, images, places, torch.ones_like(ids, dtype=torch.bool))
        without = logits_at(model, ids, [image * 0 for image in images], places, torch.ones_like(ids, dtype=torch.bool))
    assert torch.allclose(expected, fast, atol=1e-3, rtol=1e-3)
    assert (without - fast).abs().max() > 0.1  # what the frames show is seen at all


@pytest.mark.parametrize("family", FAMILIES)
def test_patches_are_the_processors(family: FamilyName) -> None:
    side = 2 * FAMILIES[family].frame_side
    images = list(np.random.default_rng(0).integers(0, 256, (3, side, side, 3), dtype=np.uint8))
    stock = image_processor(family)(images=[Image.fromarray(image) for image in images], return_tensors="pt")
    mine = torch.from_numpy(patches(images, family))
    assert torch.allclose(stock["pixel_values"].reshape(mine.shape), mine, atol=1e-5)


def test_frames_that_are_no_whole_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="multiples of 28"):
        patches([np.zeros((40, 28, 3), np.uint8)])
