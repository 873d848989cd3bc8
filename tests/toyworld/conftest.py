import asyncio
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig

from agentic_video.config.settings import limits_of, settings_of
from agentic_video.datasets.rows import load_rows
from agentic_video.families.registry import DEFAULT, FAMILY_OF, family_of
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.systems.base import EpisodeView
from agentic_video.tools.base import Video
from agentic_video.toyworld.build.base import tokenizer_corpus
from agentic_video.toyworld.build.cold_start import make_aiming, make_demonstrations
from agentic_video.toyworld.build.imitation import Demonstration
from agentic_video.toyworld.build.recipe import ToyRecipe, toy_recipe
from agentic_video.toyworld.build.scripted import Setting, play_script
from agentic_video.toyworld.model import (
    ModelRecipe,
    build_model,
    build_tokenizer,
    chat_format_of,
    save_checkpoint,
)
from agentic_video.toyworld.oracles import own_words, turns_of
from agentic_video.toyworld.questions import World, build_world, row_of, scenes
from agentic_video.toyworld.scenes import SceneSource, path_of
from agentic_video.toyworld.search import Search, demonstrate_search
from agentic_video.toyworld.world import KINDS, Scene, WorldRecipe
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory
from tests.config.configs import composed
from tests.families.processors import processor_of

EVERY_KIND = WorldRecipe(mixture=tuple((kind, 1 / len(KINDS)) for kind in KINDS))


def laptop_setting(name: str) -> Setting:
    return setting_of(composed(name, "laptop"))


def setting_of(config: DictConfig) -> Setting:
    system = settings_of(config).system
    return Setting(system, limits_of(config), turns_of(system))


@dataclass(frozen=True)
class Lesson:
    """A tiny model, and how it is taught a recipe's system."""

    setting: Setting
    toy: ToyRecipe
    tokenizer: Any
    model: Any

    @property
    def chat_format(self) -> ChatFormat:
        return chat_format_of(self.model, self.tokenizer)

    def demonstrations(self, **changes: Any) -> tuple[list[Demonstration], list[Demonstration]]:
        recipe = replace(self.toy.cold_start, **changes)
        return make_demonstrations(self.model, self.tokenizer, self.setting, self.toy.world, recipe, 0)

    def aiming(self, *kinds: str, **changes: Any) -> list[Demonstration]:
        """Practice of aiming, on questions of some kinds alone."""
        world = replace(self.toy.world, mixture=tuple((kind, 1.0) for kind in kinds)) if kinds else self.toy.world
        recipe = replace(self.toy.cold_start, **changes)
        return make_aiming(self.model, self.tokenizer, self.setting, world, recipe, 0)

    def searches(self, count: int) -> tuple[SceneSource, list[tuple[Scene, VideoQA, Search, Trajectory]]]:
        """Played demonstrations of searching, and the source of their frames."""
        made = {path_of(scene): scene for scene in scenes("train", count, 2, self.toy.world)}
        source, rng = SceneSource(made, self.toy.world), np.random.default_rng(1)
        recipe, chat_format, found = self.toy.cold_start.search, self.chat_format, []

        async def play_each() -> None:
            for number, (path, scene) in enumerate(made.items()):
                qa = row_of(scene, path, "train")
                view = EpisodeView(qa, await Video.open(path, source))
                search = demonstrate_search(view, scene, self.setting.turns, recipe, rng)
                episode = await play_script(
                    search.turns, qa, self.setting, chat_format, source, source, rollout_index=number % 8
                )
                found.append((scene, qa, search, episode.trajectory))

        asyncio.run(play_each())
        return source, found

    def said(self, one: Demonstration) -> str:
        ids = [token for token, trained in zip(one.ids, one.trained, strict=True) if trained]
        return self.chat_format.decode(ids)


def lesson_of(name: str, *overrides: str) -> Lesson:
    config, tokenizer = composed(name, "laptop", *overrides), tokenizer_of(name)
    toy = toy_recipe(config)
    return Lesson(setting_of(config), toy, tokenizer, build_model(tokenizer, toy.model))


@cache
def tokenizer_of(name: str, family: str = DEFAULT) -> Any:
    own = own_words(laptop_setting(name).system)
    return build_tokenizer(tokenizer_corpus(own=own), own.tags if own else (), family)


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
    return ChatFormat(tokenizer, processor_of(family_of(DEFAULT).tiny.processor(tokenizer).image_processor))


@pytest.fixture(scope="session")
def setting() -> Setting:
    return laptop_setting("videozoomer")


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_checkpoint(build_model(tokenizer, ModelRecipe()), tokenizer, folder)
    return folder


@pytest.fixture(scope="session", params=FAMILY_OF)
def any_checkpoint(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """An untrained checkpoint of each family."""
    return untrained(request.param, tmp_path_factory.mktemp("model"))


def untrained(family: str, folder: Path) -> Path:
    """Write a checkpoint of a family, its weights large enough for differences to show."""
    tokenizer = tokenizer_of("videozoomer", family)
    model = build_model(tokenizer, ModelRecipe(family=family))
    for parameter in model.parameters():
        if family == "gemma4" and bool((parameter == parameter.flatten()[0]).all()):
            continue  # its many norms, and its positions, begin at one: larger, they would hide all else
        parameter.data.mul_(4)
        if not parameter.any():  # biases begin at zero, which would hide them
            torch.nn.init.normal_(parameter, std=0.1)
    save_checkpoint(model, tokenizer, folder)
    return folder
