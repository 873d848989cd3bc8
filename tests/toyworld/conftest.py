from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from agentic_video.config.settings import limits_of, settings_of
from agentic_video.datasets.rows import load_rows
from agentic_video.families.registry import DEFAULT, family_of
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.toyworld.build.base import tokenizer_corpus
from agentic_video.toyworld.build.scripted import Setting
from agentic_video.toyworld.model import (
    ModelRecipe,
    build_model,
    build_tokenizer,
    save_checkpoint,
)
from agentic_video.toyworld.oracles import own_words, turns_of
from agentic_video.toyworld.questions import World, build_world
from agentic_video.toyworld.world import KINDS, WorldRecipe
from agentic_video.types.row import VideoQA
from tests.config.configs import composed
from tests.families.processors import QWEN_VL, processor_of

EVERY_KIND = WorldRecipe(mixture=tuple((kind, 1 / len(KINDS)) for kind in KINDS))


def laptop_setting(name: str) -> Setting:
    """How a recipe's laptop profile plays."""
    return setting_of(composed(name, "laptop"))


def setting_of(config: DictConfig) -> Setting:
    """How the system of a config plays."""
    system = settings_of(config).system
    return Setting(system, limits_of(config), turns_of(system))


@cache
def tokenizer_of(name: str) -> Any:
    """The tokenizer that a recipe's tiny model has: the shared one, or its own."""
    own = own_words(laptop_setting(name).system)
    return build_tokenizer(tokenizer_corpus(own=own), own.tags if own else ())


@pytest.fixture(scope="session")
def recipe() -> WorldRecipe:
    return EVERY_KIND


@pytest.fixture(scope="session")
def small_world(tmp_path_factory: pytest.TempPathFactory, recipe: WorldRecipe) -> World:
    return build_world(tmp_path_factory.mktemp("world"), train=4, heldout=40, seed=3, recipe=recipe)


@pytest.fixture(scope="session")
def rows(small_world: World) -> list[VideoQA]:
    return load_rows([small_world.heldout])[0]


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return tokenizer_of("videozoomer")


@pytest.fixture(scope="session")
def tiny_chat_format(tokenizer: Any) -> ChatFormat:
    """How prompts of the tiny Qwen2.5-VL are written."""
    return ChatFormat(tokenizer, processor_of(family_of(DEFAULT).tiny.processor(tokenizer).image_processor))


@pytest.fixture(scope="session")
def setting() -> Setting:
    return laptop_setting("videozoomer")


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_checkpoint(build_model(tokenizer, ModelRecipe()), tokenizer, folder)
    return folder


@pytest.fixture(scope="session", params=QWEN_VL)
def any_checkpoint(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any, request: pytest.FixtureRequest) -> Path:
    """An untrained checkpoint of each family, its weights large enough for differences to show."""
    folder = tmp_path_factory.mktemp("model")
    model = build_model(tokenizer, ModelRecipe(family=request.param))
    for parameter in model.parameters():
        parameter.data.mul_(4)
    save_checkpoint(model, tokenizer, folder)
    return folder
