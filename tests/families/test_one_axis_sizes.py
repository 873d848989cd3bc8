"""Sizes of the families with one position axis: by hand, and against transformers' own processors."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GotOcr2ImageProcessor
from transformers.models.gemma4.image_processing_gemma4 import (
    Gemma4ImageProcessor,
    get_aspect_ratio_preserving_size,
)

from agentic_video.families.base import ProcessorError, UnkeptSizeError
from agentic_video.families.gemma4_sizes import BudgetRules
from agentic_video.families.internvl_sizes import SquareRules
from agentic_video.families.registry import family_of, rules_in
from tests.families.processors import Processor

SIDES = st.integers(1, 3000)


def processor_of(family: str, image: Any, tokens: int, **text: Any) -> Any:
    config = SimpleNamespace(model_type=family, text_config=SimpleNamespace(**text))
    return Processor(config=config, image_processor=image, image_seq_length=tokens)


def test_squares_by_hand() -> None:
    # a square of 32 x 32 patches, four of which are a token
    image = GotOcr2ImageProcessor(size={"height": 448, "width": 448})
    rules = family_of("internvl").rules(processor_of("internvl", image, 256))
    assert rules == SquareRules(448, 448, 256) and (rules.side, rules.most_image_tokens) == (28, 256)
    assert rules.kept(640, 360) == (448, 448) and rules.tokens(640, 360) == 256
    with pytest.raises(UnkeptSizeError, match="448x448"):
        rules.require_kept(640, 360)
    # twelve squares and a small copy of the whole are what vLLM makes room for
    cutting = GotOcr2ImageProcessor(size={"height": 448, "width": 448}, crop_to_patches=True)
    assert family_of("internvl").rules(processor_of("internvl", cutting, 256)).most_image_tokens == 13 * 256


def test_a_square_is_not_cut() -> None:
    image = GotOcr2ImageProcessor(size={"height": 448, "width": 448})
    picture = torch.randint(0, 256, (3, 448, 448), dtype=torch.uint8)
    whole, cut = (image(images=[picture], crop_to_patches=way, return_tensors="pt") for way in (False, True))
    assert torch.equal(whole["pixel_values"], cut["pixel_values"]) and cut["num_patches"].tolist() == [1]
    assert image(images=[picture[:, :224]], crop_to_patches=True, return_tensors="pt")["num_patches"].tolist() == [3]


def test_budgets_by_hand() -> None:
    rules = BudgetRules(48, 70)
    # sqrt(70 / (4 * 3)) = 2.4 tokens for each of four to three: 9.7 columns and 7.2 rows
    assert rules.resized(640, 480) == (432, 336) == rules.kept(640, 480)
    assert rules.tokens(640, 480) == 63 and rules.most_image_tokens == 70
    # 16 to 9 become 11 x 6, whose own shape has room for no more
    assert rules.resized(640, 360) == (528, 288) == rules.kept(640, 360)
    # 8 x 4 tokens leave room for 11 x 5: of such sizes none stays, and a similar one is shown
    assert rules.resized(8 * 48, 4 * 48) == (11 * 48, 5 * 48)
    with pytest.raises(UnkeptSizeError):
        rules.require_kept(8 * 48, 4 * 48)


@pytest.mark.parametrize("budget", [70, 280])
@given(width=SIDES, height=SIDES)
def test_budgets_are_the_processor_s(budget: int, width: int, height: int) -> None:
    image = Gemma4ImageProcessor(max_soft_tokens=budget)
    rules = family_of("gemma4").rules(processor_of("gemma4", image, 280))
    assert rules == BudgetRules(48, budget)
    expected = get_aspect_ratio_preserving_size(height, width, 16, 9 * budget, 3)
    assert rules.resized(width, height) == expected[::-1]
    kept = rules.kept(width, height)
    rules.require_kept(*kept)
    assert rules.kept(*kept) == kept and rules.tokens(*kept) <= budget
    if max(width, height) <= 4 * min(width, height):  # a similar shape is among those that stay
        assert abs(math.log(kept[0] / kept[1]) - math.log(width / height)) < 0.2


def test_a_kept_picture_is_the_processor_s() -> None:
    image, rules = Gemma4ImageProcessor(max_soft_tokens=70), BudgetRules(48, 70)
    for size in ((640, 480), (360, 640), (100, 100)):
        width, height = rules.kept(*size)
        picture = torch.randint(0, 256, (3, height, width), dtype=torch.uint8)
        made = image(images=[picture], return_tensors="pt")
        assert made["num_soft_tokens_per_image"].tolist() == [rules.tokens(width, height)]
        assert made["image_position_ids"].amax(1).tolist() == [[width // 16 - 1, height // 16 - 1]]
        assert torch.allclose(made["pixel_values"][0, 0], picture[:, :16, :16].permute(1, 2, 0).reshape(-1) / 255)


def test_models_whose_image_tokens_see_each_other_are_refused(tmp_path: Path) -> None:
    image = Gemma4ImageProcessor()
    with pytest.raises(ProcessorError, match="use_bidirectional_attention=vision"):
        family_of("gemma4").rules(processor_of("gemma4", image, 280, use_bidirectional_attention="vision"))
    image.save_pretrained(tmp_path)
    for attention in (None, "vision"):
        config = {"model_type": "gemma4", "text_config": {"use_bidirectional_attention": attention}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        if attention:
            with pytest.raises(ProcessorError, match="E2B"):
                rules_in(tmp_path)
        else:
            assert rules_in(tmp_path) == BudgetRules(48, 280)


@pytest.mark.parametrize("family", ["internvl", "gemma4"])
@pytest.mark.parametrize("text", ["{", "[]", '{"size": {"height": "a"}, "patch_size": "b"}'])
def test_files_that_are_no_processor_s(family: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    with pytest.raises(ProcessorError):
        rules_in(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(ProcessorError):
        rules_in(tmp_path)
