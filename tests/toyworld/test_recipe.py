from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict

from agentic_video.config.compose import compose_recipe, recipe_at
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
