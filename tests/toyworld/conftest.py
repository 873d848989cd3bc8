from pathlib import Path
from typing import Any

import pytest

from agentic_video.data.schema import VideoQA
from agentic_video.toyworld.cold_start import tokenizer_corpus
from agentic_video.toyworld.gate import read_rows
from agentic_video.toyworld.laptop import laptop_system
from agentic_video.toyworld.model import build_tokenizer
from agentic_video.toyworld.questions import World, build_world
from agentic_video.toyworld.world import KINDS, WorldRecipe

EVERY_KIND = WorldRecipe(mixture=tuple((kind, 1 / len(KINDS)) for kind in KINDS))


@pytest.fixture(scope="session")
def recipe() -> WorldRecipe:
    return EVERY_KIND


@pytest.fixture(scope="session")
def small_world(tmp_path_factory: pytest.TempPathFactory, recipe: WorldRecipe) -> World:
    return build_world(tmp_path_factory.mktemp("world"), train=4, heldout=40, seed=3, recipe=recipe)


@pytest.fixture(scope="session")
def rows(small_world: World) -> list[VideoQA]:
    return read_rows(small_world.heldout)


@pytest.fixture(scope="session")
def tokenizer(recipe: WorldRecipe) -> Any:
    return build_tokenizer(tokenizer_corpus(laptop_system(recipe.overview_frames), recipe))


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    from agentic_video.toyworld.model import ModelRecipe, build_model, save_checkpoint

    folder = tmp_path_factory.mktemp("model")
    save_checkpoint(build_model(tokenizer, ModelRecipe()), tokenizer, folder)
    return folder
