"""Facts of published checkpoints: complete, and equal to what the installed libraries make of them."""

import json
import re
from pathlib import Path

import pytest
from transformers import Qwen2_5_VLConfig, Qwen3_5Config, Qwen3VLConfig

from agentic_video.evaluation.checkpoints import checkpoints
from agentic_video.families.registry import FAMILY_OF
from agentic_video.planning.published_checkpoints import (
    checkpoint_rules,
    published_checkpoints,
    published_rules,
)
from agentic_video.planning.shapes import published_shapes
from agentic_video.utils.errors import SetupError
from tests.rooms import REPOSITORY

NAME = re.compile(r"Qwen/Qwen[0-9.]+-VL-[0-9A-Za-z]+(?:-[0-9A-Za-z]+)*")


def test_every_checkpoint_that_is_named_anywhere_is_there() -> None:
    pages = [
        *REPOSITORY.glob("docs/*.md"),
        *REPOSITORY.glob("recipes/**/*.*"),
        *REPOSITORY.glob("agentic_video/**/*.yaml"),
    ]
    named = {name for page in pages for name in NAME.findall(page.read_text(encoding="utf-8"))}
    named |= {one.model for one in checkpoints().values()} | {one.base for one in checkpoints().values()}
    assert len(named) > 8
    assert named <= set(published_checkpoints())


def test_facts_agree_with_shapes_and_with_each_other() -> None:
    for name, shape in published_shapes().items():
        facts = published_checkpoints()[name]
        assert (facts.family, facts.tied) == (shape.family, shape.text.tied)
        assert (facts.patch, facts.merge, facts.temporal) == (
            shape.vision.patch,
            shape.vision.merge,
            shape.vision.temporal,
        )
    for facts in published_checkpoints().values():
        assert facts.sources and facts.template
        assert bool(facts.base) == bool(facts.unsourced)
        assert facts.rules == published_checkpoints()[FAMILY_OF[facts.family].example].rules
        assert not facts.base or facts.family == published_checkpoints()[facts.base].family


def test_token_ids_are_those_of_transformers_configs() -> None:
    for config in (Qwen2_5_VLConfig(), Qwen3VLConfig(), Qwen3_5Config()):
        tokens = published_checkpoints()[FAMILY_OF[config.model_type].example].tokens
        assert tokens["<|image_pad|>"] == config.image_token_id
        assert tokens["<|video_pad|>"] == config.video_token_id
        assert tokens["<|vision_start|>"] == config.vision_start_token_id
        assert tokens["<|vision_end|>"] == config.vision_end_token_id


def test_rules_by_name_by_folder_and_by_family(tmp_path: Path) -> None:
    qwen3 = published_checkpoints()["Qwen/Qwen3-VL-8B-Instruct"].rules
    assert published_rules("Qwen3-VL-8B") == published_rules("ParaVT/ParaVT-8B") == qwen3
    assert published_rules("mine", "qwen3_vl") == checkpoint_rules(str(tmp_path), "qwen3_vl") == qwen3
    assert published_rules("mine") is None
    values = {"size": {"shortest_edge": 1024, "longest_edge": 65536}, "patch_size": 16}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(values))
    found = checkpoint_rules(str(tmp_path))
    assert found is not None and (found.image.min_pixels, found.image.max_pixels, found.side) == (1024, 65536, 32)


def test_a_folder_with_a_broken_processor_costs_one_line(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(SetupError) as caught:
        checkpoint_rules(str(tmp_path), "qwen3_vl")
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)
