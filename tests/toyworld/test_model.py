from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from agentic_video.rollout.tokens import ChatFormat
from agentic_video.toyworld.cold_start import make_demonstrations
from agentic_video.toyworld.forward import logits_at, patches, positions
from agentic_video.toyworld.model import (
    FAMILIES,
    SPECIAL_TOKENS,
    TAGS,
    FamilyName,
    build_model,
    family_of,
    image_processor,
    load_checkpoint,
)
from agentic_video.toyworld.recipe import toy_recipe
from tests.config.configs import composed
from tests.toyworld.conftest import laptop_setting


@pytest.mark.parametrize(
    "text", ["<frame3_time12.50s>", "héé 漢字 🙂", '{"segment": [41, 43], "fps": 2}', " \n\n a  b"]
)
def test_tokenizer_round_trip(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_tags_and_words_are_single_tokens(tokenizer: Any) -> None:
    for text in (*SPECIAL_TOKENS, *TAGS, " red", " triangle", " purple", " one", " A", "A"):
        assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) == 1, text
    assert len(tokenizer("42")["input_ids"]) == 2


def test_chat_template(checkpoint: Path) -> None:
    processor = AutoProcessor.from_pretrained(checkpoint)
    messages = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "?"}],
        },
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    assert processor.apply_chat_template(messages, add_generation_prompt=True) == (
        "<|im_start|>user\none<|vision_start|><|image_pad|><|vision_end|>?<|im_end|>\n"
        "<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n"
    )


def test_checkpoint_loads_as_everybody_expects(any_checkpoint: Path, tokenizer: Any) -> None:
    model = AutoModelForImageTextToText.from_pretrained(any_checkpoint, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(any_checkpoint)
    expected = {"qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}[family_of(model)]
    assert type(model).__name__ == f"{expected}ForConditionalGeneration"
    assert type(processor).__name__ == f"{expected}Processor"
    assert model.config.text_config.vocab_size == len(processor.tokenizer) == len(tokenizer)
    assert model.config.text_config.hidden_size // model.config.text_config.num_attention_heads >= 32
    side = FAMILIES[family_of(model)].frame_side
    image = Image.new("RGB", (side, side), (200, 30, 30))
    text = "<|vision_start|><|image_pad|><|vision_end|>What colour?"
    inputs = processor(text=[text], images=[image], return_tensors="pt")
    assert int((inputs["input_ids"] == model.config.image_token_id).sum()) == 1
    assert model(**inputs).logits.shape[-1] == len(tokenizer)


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


@pytest.mark.parametrize("name", ["videozoomer", "framethinker", "framemind", "videobrain", "eva"])
def test_demonstrations_are_what_a_rollout_records(name: str, tokenizer: Any) -> None:
    setting = laptop_setting(name)
    toy = toy_recipe(composed(name, "laptop"))
    model = build_model(tokenizer, toy.model)
    demonstrations = make_demonstrations(
        model, tokenizer, setting.system, setting.limits, setting.turns, toy.world,
        replace(toy.cold_start, demonstrations=60), 0,
    )  # fmt: skip
    chat_format = ChatFormat(tokenizer, image_processor(toy.model.family))
    answers = 0
    assert len(demonstrations) >= 60
    for one in demonstrations:
        assert len(one.trained) == len(one.ids) == one.places.shape[1]
        assert len(one.ids) <= setting.limits.prompt + setting.limits.response
        expected = sum(chat_format.image_tokens(image.shape[1], image.shape[0]) for image in one.images)
        assert one.ids.count(chat_format.image_token_id) == expected
        said = chat_format.decode([token for token, trained in zip(one.ids, one.trained, strict=True) if trained])
        assert said.startswith("<think") and "<|im_start|>" not in said and "<|image_pad|>" not in said
        answers += "it is" in said
    # Some aim off: their answer isn't trained on.
    assert 10 < answers < 60
