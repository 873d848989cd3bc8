import math
import re
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict

from agentic_video.config.compose import compose_recipe, recipe_at
from agentic_video.config.typed import dataclass_from
from agentic_video.toyworld.cold_start import ColdStartRecipe
from agentic_video.toyworld.recipe import ToyRecipe, toy_recipe


def config_with(block: dict[str, Any]) -> DictConfig:
    """VideoZoomer's laptop config with another block."""
    config = compose_recipe(recipe_at("videozoomer"), "laptop", [])
    with open_dict(config):
        config.agentic_video.toyworld = OmegaConf.create(block)
    return config


def test_the_configs_block_is_the_recipe() -> None:
    block = {"train": 7, "world": {"mixture": [["colour", 1.0]]}, "model": {"family": "qwen3_vl"}}
    recipe = toy_recipe(config_with(block))
    assert (recipe.train, recipe.heldout) == (7, ToyRecipe().heldout)
    assert recipe.world.mixture == (("colour", 1.0),) and recipe.model.family == "qwen3_vl"
    assert toy_recipe(config_with({})) == ToyRecipe()
    with pytest.raises(ValueError, match=r"agentic_video\.toyworld\.world\.fsp: unknown key"):
        toy_recipe(config_with({"world": {"fsp": 1}}))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("attempts", 0, ": attempts must be at least 1, got 0"),
        ("train", 0, ": train must be at least 1, got 0"),
        ("heldout", -1, ": heldout must be at least 1, got -1"),
        ("seed", -1, ": seed must be at least 0, got -1"),
        ("world.fps", 0, ": world.fps must be at least 1, got 0"),
        ("world.overview_frames", 0, ": world.overview_frames must be at least 1, got 0"),
        ("world.other_overviews", [4, 0], r": world.other_overviews must each be at least 1, got (4, 0)"),
        ("world.open_ended", 1.5, ": world.open_ended must be a share from 0 to 1, got 1.5"),
        ("world.mixture", [["colour", 1.5], ["overview", -0.5]], ": world.mixture must have no negative share, got"),
        ("base.world.fps", 0, ".base: world.fps must be at least 1, got 0"),
        ("base.reading_batch", 0, ".base: reading_batch must be at least 1, got 0"),
        ("model.heads", 3, ".model: hidden must be a multiple of heads, got 64 and 3"),
        ("model.layers", 0, ".model: layers must be at least 1, got 0"),
        ("cold_start.demonstrations", 0, ".cold_start: demonstrations must be at least 1, got 0"),
        ("cold_start.kept", -1, ".cold_start: kept must be at least 0, got -1"),
        ("cold_start.aim_error_rate", 1.5, ".cold_start: aim_error_rate must be a share from 0 to 1, got 1.5"),
        ("cold_start.learning_rate", math.nan, ".cold_start: learning_rate must be above 0, got nan"),
        ("gate.grammar", math.nan, ".gate: grammar must be a number, got nan"),
    ],
)
def test_a_number_that_makes_no_sense_is_named(key: str, value: Any, said: str) -> None:
    block: Any = value
    for name in reversed(key.split(".")):
        block = {name: block}
    with pytest.raises(ValueError, match=re.escape(f"agentic_video.toyworld{said}")):
        toy_recipe(config_with(block))


def test_zero_may_mean_none() -> None:
    none = {"habit": 0, "kept": 0, "aiming_steps": 0, "steps": 0, "aim_error_rate": 0}
    assert dataclass_from(ColdStartRecipe, none, "") == ColdStartRecipe(**none)  # type: ignore[arg-type]
