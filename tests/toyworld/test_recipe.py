import pytest
from omegaconf import OmegaConf

from agentic_video.toyworld.recipe import ToyRecipe, toy_recipe


def test_the_configs_block_is_the_recipe() -> None:
    block = {"train": 7, "world": {"mixture": [["colour", 1.0]]}, "model": {"family": "qwen3_vl"}}
    recipe = toy_recipe(OmegaConf.create({"agentic_video": {"toyworld": block}}))
    assert (recipe.train, recipe.heldout) == (7, ToyRecipe().heldout)
    assert recipe.world.mixture == (("colour", 1.0),) and recipe.model.family == "qwen3_vl"
    assert toy_recipe(OmegaConf.create({"agentic_video": {}})) == ToyRecipe()
    with pytest.raises(ValueError, match=r"agentic_video\.toyworld\.world\.fsp: unknown key"):
        toy_recipe(OmegaConf.create({"agentic_video": {"toyworld": {"world": {"fsp": 1}}}}))
