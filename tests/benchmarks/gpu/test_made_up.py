"""Checkpoints of published shapes, and episodes that were never played."""

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

from agentic_video.families.registry import DEFAULT
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.toyworld.model import build_tokenizer
from agentic_video.toyworld.model import chat_format as chat_format_of_family
from benchmarks.gpu.sequences import Turn, make_sequence, picture_tokens, plan
from benchmarks.gpu.shapes import SHAPES, WORDS, parameters, write_checkpoint

PUBLISHED = {"qwen2.5-vl-7b": 8.29e9, "qwen3-vl-8b": 8.77e9}
"""Parameters, as the models' pages have them."""


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_has_as_many_parameters_as_the_published_model(name: str) -> None:
    found = parameters(name)
    total = found["embedding"] + found["head"] + found["vision"] + SHAPES[name].layers * found["layer"]
    assert total == pytest.approx(PUBLISHED[name], rel=0.005)


@pytest.mark.parametrize(("name", "tokens"), [("tiny", 128), ("tiny-qwen3_vl", 98)])
def test_a_tiny_checkpoint_leaves_frames_as_they_are(name: str, tokens: int, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / name, name, dtype="float32")
    processor = AutoProcessor.from_pretrained(folder)
    # 448 x 224: 16 x 8 tokens of 28 pixels, 14 x 7 of 32
    assert ChatFormat.of(processor).rules.tokens(448, 224) == tokens
    made = processor.image_processor(images=[np.zeros((224, 448, 3), np.uint8)], return_tensors="pt")
    assert int(made["image_grid_thw"].prod()) == 4 * tokens
    assert write_checkpoint(folder, name, dtype="bfloat16") == folder
    assert AutoConfig.from_pretrained(folder).dtype == AutoModelForImageTextToText.from_pretrained(folder).dtype


def test_a_checkpoint_for_dummy_weights_has_none(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "x", "qwen2.5-vl-7b", weights=False)
    config = AutoConfig.from_pretrained(folder)
    assert config.text_config.num_hidden_layers == 28 and config.text_config.vocab_size == 152_064
    assert not list(folder.glob("*.safetensors"))
    processor = AutoProcessor.from_pretrained(folder).image_processor
    assert processor.get_number_of_image_patches(224, 448, {}) == 16 * 32


def test_a_plan_has_the_tokens_and_images_that_are_asked_for() -> None:
    turns = plan(1000, 10, 20, turns=3)
    # 800 tokens of text: 66 said in each turn, 200 shown and the 2 that are left over
    assert [turn.images for turn in turns] == [5, 2, 3]
    assert sum(turn.words + turn.says + 20 * turn.images for turn in turns) == 1000
    assert {turn.says for turn in turns} == {66}
    with pytest.raises(ValueError, match="leave 0 of 200 tokens"):
        plan(200, 10, 20)


def test_an_episode_has_images_where_its_placeholders_are() -> None:
    chat_format = chat_format_of_family(build_tokenizer(WORDS * 4), DEFAULT)
    # two placeholders each, between two words
    assert picture_tokens(chat_format, (56, 28)) == 4
    made = make_sequence([Turn(2, 5, 3), Turn(1, 4, 2)], chat_format, (56, 28), seed=3)
    assert len(made.prompt) == 5 + 2 * 4 and len(made.response) == 3 + (4 + 4) + 2
    assert made.mask == [1] * 3 + [0] * 8 + [1] * 2
    assert made.ids.count(chat_format.image_token_id) == 3 * 2 and len(made.images) == 3
    assert made.images[0].shape == (28, 56, 3) and not np.array_equal(made.images[0], made.images[1])
    said = [token for token, kept in zip(made.response, made.mask, strict=True) if kept]
    assert not set(said) & set(chat_format.tokenizer.all_special_ids)
