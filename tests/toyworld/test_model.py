import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from agentic_video.families.registry import DEFAULT, family_of
from agentic_video.toyworld.model import (
    TAGS,
    chat_format_of,
    load_chat_format,
    load_checkpoint,
)
from agentic_video.types.message import Message


@pytest.mark.parametrize(
    "text", ["<frame3_time12.50s>", "héé 漢字 🙂", '{"segment": [41, 43], "fps": 2}', " \n\n a  b"]
)
def test_tokenizer_round_trip(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_tags_and_words_are_single_tokens(tokenizer: Any) -> None:
    for text in (*family_of(DEFAULT).tiny.special_tokens, *TAGS, " red", " triangle", " purple", " one", " A", "A"):
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


def test_checkpoint_loads_as_everybody_expects(any_checkpoint: Path) -> None:
    model = AutoModelForImageTextToText.from_pretrained(any_checkpoint, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(any_checkpoint)
    family, text = family_of(model), model.config.text_config
    assert type(model).__name__ == json.loads((any_checkpoint / "config.json").read_text())["architectures"][0]
    assert type(processor).__name__ in family.processor_classes
    assert text.vocab_size == len(processor.tokenizer)
    assert text.hidden_size // text.num_attention_heads >= 32
    image = Image.new("RGB", (family.tiny.frame_side, family.tiny.frame_side), (200, 30, 30))
    inputs = processor(text=[f"{family.image_token}What colour?"], images=[image], return_tensors="pt")
    assert int((inputs["input_ids"] == model.config.image_token_id).sum()) == 1
    assert model(**inputs).logits.shape[-1] == len(processor.tokenizer)


def test_prompts_are_written_alike_with_and_without_the_weights(any_checkpoint: Path) -> None:
    loaded, alone = chat_format_of(*load_checkpoint(any_checkpoint)), load_chat_format(any_checkpoint)
    asked = [Message("user", ("What colour?",))]
    assert loaded.opening_ids(asked) == alone.opening_ids(asked)
    assert loaded.image_ids(64, 64) == alone.image_ids(64, 64)
