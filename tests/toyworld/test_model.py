from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from agentic_video.rollout.tokens import ChatFormat
from agentic_video.toyworld.cold_start import ColdStartRecipe, make_demonstrations
from agentic_video.toyworld.laptop import LIMITS, laptop_system
from agentic_video.toyworld.model import SPECIAL_TOKENS, TAGS, image_processor, logits_at, patches
from agentic_video.toyworld.world import WorldRecipe


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


def test_checkpoint_loads_as_everybody_expects(checkpoint: Path, tokenizer: Any) -> None:
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(checkpoint)
    assert type(model).__name__ == "Qwen2_5_VLForConditionalGeneration"
    assert type(processor).__name__ == "Qwen2_5_VLProcessor"
    assert model.config.text_config.vocab_size == len(processor.tokenizer) == len(tokenizer)
    assert model.config.text_config.hidden_size // model.config.text_config.num_attention_heads >= 32
    image = Image.new("RGB", (56, 56), (200, 30, 30))
    text = "<|vision_start|><|image_pad|><|vision_end|>What colour?"
    inputs = processor(text=[text], images=[image], return_tensors="pt")
    assert int((inputs["input_ids"] == model.config.image_token_id).sum()) == 1
    assert model(**inputs).logits.shape[-1] == len(tokenizer)


def test_fast_forward_equals_the_stock_one(checkpoint: Path) -> None:
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(checkpoint)
    images = list(np.random.default_rng(0).integers(0, 256, (3, 28, 28, 3), dtype=np.uint8))
    image_text = "<|vision_start|><|image_pad|><|vision_end|>"
    ids = processor.tokenizer(f"a{image_text}b{image_text}{image_text} it is red", return_tensors="pt")["input_ids"]
    stock = processor.image_processor(images=[Image.fromarray(image) for image in images], return_tensors="pt")
    assert torch.allclose(stock["pixel_values"].reshape(3, 4, -1), torch.from_numpy(patches(images)), atol=1e-5)
    with torch.no_grad():
        expected = model(input_ids=ids, mm_token_type_ids=(ids == model.config.image_token_id).int(), **stock).logits
        fast = logits_at(model, ids, torch.from_numpy(patches(images)), torch.ones_like(ids, dtype=torch.bool))
    assert torch.allclose(expected[0], fast, atol=1e-4)


def test_frames_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="28x28"):
        patches([np.zeros((56, 56, 3), np.uint8)])


def test_demonstrations_are_what_a_rollout_records(tokenizer: Any, recipe: WorldRecipe) -> None:
    cold_start = ColdStartRecipe(demonstrations=60)
    system = laptop_system(recipe.overview_frames)
    demonstrations = make_demonstrations(tokenizer, system, recipe, cold_start, 0)
    chat_format = ChatFormat(tokenizer, image_processor())
    calls = answers = 0
    for one in demonstrations:
        assert len(one.trained) == len(one.ids) <= LIMITS.prompt + LIMITS.response
        assert one.ids.count(chat_format.image_token_id) == len(one.images)
        said = chat_format.decode([token for token, trained in zip(one.ids, one.trained, strict=True) if trained])
        assert said.startswith("<think>") and "<frame" not in said and "<|im_start|>" not in said
        calls += said.count("</video_zoom>")
        answers += said.count("</answer><|im_end|>")
    # Some aim off (no loss on their answer), some don't look.
    assert 0 < calls < 60 and 0 < answers < 60 and calls + answers > 60
