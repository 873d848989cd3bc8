from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from agentic_video.families.base import ProcessorError
from agentic_video.families.registry import DEFAULT, FAMILY_OF, family_of
from agentic_video.families.tiny import pixels_of, seconds_of
from agentic_video.toyworld.build.imitation import logits_at
from agentic_video.toyworld.model import chat_format_of, load_checkpoint
from agentic_video.training.inputs.model_inputs import model_inputs
from agentic_video.types.frame import Clip, Frame
from agentic_video.types.message import Message, Visual
from tests.families.processors import QWEN_VL


def test_fast_forward_equals_the_stock_one(any_checkpoint: Path) -> None:
    model, tokenizer = load_checkpoint(any_checkpoint)
    model.eval()
    family = family_of(model)
    side, processor = family.tiny.frame_side, family.tiny.processor(tokenizer)
    rng, rules = np.random.default_rng(0), family.rules(processor)
    sizes = [rules.kept(*size) for size in [(side, side), (2 * side, 2 * side), (2 * side, side), (side, side)]]
    images = [rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for width, height in sizes]
    content = [{"type": "text", "text": "a"}, *[{"type": "image"}] * len(images), {"type": "text", "text": "b is red"}]
    text = tokenizer.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
    stock = processor(text=[text], images=[Image.fromarray(image) for image in images], return_tensors="pt")
    ids = stock["input_ids"]
    with torch.no_grad():
        expected = model(**stock).logits[0]
        places = family.tiny.positions(model, ids[0].tolist(), images)[:, None]
        fast = logits_at(model, ids, images, places, torch.ones_like(ids, dtype=torch.bool))
        without = logits_at(model, ids, [image * 0 for image in images], places, torch.ones_like(ids, dtype=torch.bool))
    assert torch.allclose(expected, fast, atol=1e-3, rtol=1e-3)
    assert (without - fast).abs().max() > 0.1  # what the frames show is seen at all


@pytest.mark.parametrize("family", QWEN_VL)
def test_patches_are_the_processors(family: str, tokenizer: Any) -> None:
    tiny: Any = FAMILY_OF[family].tiny
    side, processor = 2 * tiny.frame_side, tiny.processor(tokenizer)
    images = list(np.random.default_rng(0).integers(0, 256, (3, side, side, 3), dtype=np.uint8))
    stock = processor.image_processor(images=[Image.fromarray(image) for image in images], return_tensors="pt")
    mine = torch.from_numpy(tiny.patches(images))
    assert torch.allclose(stock["pixel_values"].reshape(mine.shape), mine, atol=1e-5)


def test_frames_that_are_no_whole_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="multiples of 28"):
        family_of(DEFAULT).tiny.patches([np.zeros((40, 28, 3), np.uint8)])


def test_clips_equal_the_stock_forward_pass(any_checkpoint: Path) -> None:
    model, tokenizer = load_checkpoint(any_checkpoint)
    model.eval()
    tiny = family_of(model).tiny
    side, processor = tiny.frame_side, tiny.processor(tokenizer)
    rng, rules = np.random.default_rng(0), family_of(model).rules(processor)

    def frame(number: int, time: float, width: int) -> Frame:
        return Frame(number, time, rng.integers(0, 256, (side, width, 3), dtype=np.uint8))

    clips = [
        Clip(tuple(frame(number, 1.5 * number, 2 * side) for number in range(5))),
        Clip((frame(7, 20.0, side), frame(8, 20.25, side))),
    ]
    shown: list[Visual] = [clips[0], frame(9, 30.0, 2 * side), clips[1]]
    if not rules.takes_clips:
        for refused in (rules.resized, rules.kept, rules.tokens):
            with pytest.raises(ProcessorError, match="frames_as"):
                refused(side, side, 5)
        return
    ids = chat_format_of(model, tokenizer).opening_ids([Message("user", ("look", *shown, "it is red"))])
    images = pixels_of(shown)
    places = tiny.positions(model, ids, images, seconds_of(shown))[:, None]
    row = torch.tensor([ids])
    processor.config = model.config
    told, stock = family_of(model).in_one_pass(processor, row[0], model_inputs(processor, row[0], shown)[1])
    given = {name: stock[name] for name in ("pixel_values", "image_grid_thw")}
    with torch.no_grad():
        expected = model(input_ids=told[None], position_ids=places, **given).logits[0]
        fast = logits_at(model, row, images, places, torch.ones_like(row, dtype=torch.bool))
        blank = [image * 0 for image in images]
        without = logits_at(model, row, blank, places, torch.ones_like(row, dtype=torch.bool))
    assert torch.allclose(expected, fast, atol=1e-3, rtol=1e-3)
    assert (without - fast).abs().max() > 0.1
