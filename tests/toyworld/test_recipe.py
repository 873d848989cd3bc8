import math
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict

from agentic_video.config.compose import compose_recipe, recipe_at
from agentic_video.config.typed import ConfigError, dataclass_from
from agentic_video.toyworld.build.cold_start import ColdStartRecipe
from agentic_video.toyworld.build.recipe import ToyRecipe, toy_recipe


def nested(key: str, value: Any) -> dict[str, Any]:
    for name in reversed(key.split(".")):
        value = {name: value}
    return dict(value)


def config_with(block: dict[str, Any]) -> DictConfig:
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
    ("key", "value"),
    [
        ("attempts", 0),
        ("seed", -1),
        ("world.fps", 0),
        ("world.other_overviews", [4, 0]),
        ("world.open_ended", 1.5),
        ("world.hint", 1.5),
        ("world.mixture", [["colour", 1.5], ["overview", -0.5]]),
        ("base.world.fps", 0),
        ("base.reading_batch", 0),
        ("model.layers", 0),
        ("cold_start.kept", -1),
        ("cold_start.aim_error_rate", 1.5),
        ("cold_start.learning_rate", math.nan),
        ("cold_start.search.reads", 2.0),
        ("gate.grammar", math.nan),
    ],
)
def test_an_impossible_number_is_named(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as error:
        toy_recipe(config_with(nested(key, value)))
    assert error.value.key == f"agentic_video.toyworld.{key}"


def test_heads_share_the_width() -> None:
    with pytest.raises(ConfigError, match="hidden"):
        toy_recipe(config_with(nested("model.heads", 3)))


def test_former_names_of_keys_are_read() -> None:
    former = {"off_aim": 0.1, "thoughtless": 0.2, "astray": 0.3}
    taught = toy_recipe(config_with({"cold_start": former})).cold_start
    assert (taught.aim_error_rate, taught.drop_thought_rate, taught.random_aim_rate) == (0.1, 0.2, 0.3)


def test_zero_may_mean_none() -> None:
    none = {"habit": 0, "kept": 0, "aiming_steps": 0, "steps": 0, "aim_error_rate": 0}
    assert dataclass_from(ColdStartRecipe, none, "") == ColdStartRecipe(**none)  # type: ignore[arg-type]
