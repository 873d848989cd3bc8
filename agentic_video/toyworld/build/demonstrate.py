"""Writes the oracle's episodes on the synthetic world as trajectory records, for the laptop's SFT.

``python -m agentic_video.toyworld.build.demonstrate recipes/<system>`` builds what is missing and prints its paths."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import episode_limits, settings_of
from agentic_video.datasets.rows import load_rows
from agentic_video.rollout.tokens import ChatFormat, TokenLimits
from agentic_video.systems.base import EpisodeView, System
from agentic_video.tools.base import Video
from agentic_video.toyworld.build.cache import (
    Cache,
    base_facts,
    ensure_base,
    ensure_world,
    system_facts,
    taught,
    world_facts,
)
from agentic_video.toyworld.build.command_line import print_paths, run_builder, stage_parser
from agentic_video.toyworld.build.ensure import ensure
from agentic_video.toyworld.build.recipe import ToyRecipe, toy_recipe
from agentic_video.toyworld.build.scripted import Setting, play_script
from agentic_video.toyworld.model import load_chat_format
from agentic_video.toyworld.oracles import own_words, turns_of
from agentic_video.toyworld.questions import World
from agentic_video.toyworld.scenes import SceneSource
from agentic_video.toyworld.world import Scene, WorldRecipe, make_scene
from agentic_video.types.record import Record, write_record
from agentic_video.types.row import VideoQA
from agentic_video.video.store import FrameStore

GROUP = 8
"""Rollouts per group: systems that show each something else are shown in all ways."""

RECORDS = 3
"""Raise it when the content of record files changes: earlier ones are built again."""

Script = Callable[[EpisodeView, Scene, np.random.Generator], tuple[Sequence[str], Mapping[str, str]]]
"""Texts of an episode on a scene, and the provenance of its record."""


def write_demonstrations(folder: Path, world: World, base: Path, setting: Setting, recipe: WorldRecipe) -> None:
    """Play the oracle on every question of a world; write ``train.jsonl`` and ``heldout.jsonl``."""

    def script(view: EpisodeView, scene: Scene, rng: np.random.Generator) -> tuple[Sequence[str], Mapping[str, str]]:
        return setting.turns(view, scene.aim, scene.answer, scene.letter), {"source": "oracle"}

    write_scripted(folder, world, base, setting, recipe, script, "demonstrations")


def write_scripted(
    folder: Path, world: World, model: Path, setting: Setting, recipe: WorldRecipe, script: Script, noun: str
) -> None:
    """Write a scripted episode on every question of a world to ``train.jsonl`` and ``heldout.jsonl``."""
    chat_format = load_chat_format(model)
    for seed, (split, file) in enumerate((("train", world.train), ("heldout", world.heldout))):
        rows, _ = load_rows([file])
        records = asyncio.run(play_rows(rows, chat_format, setting, recipe, script, seed))
        with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as written:
            for record in records:
                # The video's path is relative to the file's folder: both may move with the cache.
                video = os.path.relpath(record.qa.video, folder.resolve())
                write_record(written, replace(record, qa=replace(record.qa, video=video)))
        print(f"[toyworld] {setting.system.name}: {len(records)} {noun} on {split} questions", flush=True)


async def play_rows(
    rows: Sequence[VideoQA],
    chat_format: ChatFormat,
    setting: Setting,
    recipe: WorldRecipe,
    script: Script,
    seed: int,
) -> list[Record]:
    """Scripted episodes on rows of a world, with frames from the video files."""
    store, rng, records = FrameStore(), np.random.default_rng([seed, 3]), []
    for number, qa in enumerate(rows):
        scene = make_scene(int(qa.extra["seed"]), recipe)
        said, provenance = script(EpisodeView(qa, await Video.open(qa.video, store)), scene, rng)
        # Frames by text come from the scene itself: a demonstration shows what a good search finds.
        finder = SceneSource({qa.video: scene}, recipe)
        played = await play_script(said, qa, setting, chat_format, store, finder, rollout_index=number % GROUP)
        records.append(Record(qa, played.trajectory, provenance=dict(provenance)))
    return records


def ensure_demonstrations(
    system: System, limits: TokenLimits, recipe: ToyRecipe, cache: Cache
) -> tuple[Path, Path, Path]:
    """Return the oracle's training and held-out records and the base model; build what the cache lacks."""
    turns, system = turns_of(system, recipe.oracle), taught(system)
    own = own_words(system, recipe.oracle)
    world, base = ensure_world(recipe, cache), ensure_base(recipe, cache, own)
    facts = {
        **system_facts(system, limits, turns, recipe),
        "toyworld": {**world_facts(recipe), **base_facts(recipe, own)},
        "records": RECORDS,
    }

    def make(folder: Path) -> None:
        write_demonstrations(folder, world, base, Setting(system, limits, turns), recipe.world)

    folder = cache.once(f"{system.name}-demonstrations", facts, make)
    return folder / "train.jsonl", folder / "heldout.jsonl", base


def main() -> None:
    """Run the builder from the command line."""
    arguments = stage_parser("agentic_video.toyworld.build.demonstrate", __doc__, "sft_laptop").parse_args()
    config = compose_recipe(arguments.recipe, arguments.profile, arguments.overrides)
    recipe, settings = toy_recipe(config), settings_of(config)
    limits = episode_limits(config.data, settings)
    with Cache(arguments.cache, arguments.dry_run, recipe.shipped) as cache:
        if arguments.no_data:
            # A few custom records don't teach the base model a grammar: the cold start learns from them.
            print_paths({"model": ensure(settings.system, limits, recipe, cache).model})
            return
        train, heldout, base = ensure_demonstrations(settings.system, limits, recipe, cache)
    print_paths({"train": train, "heldout": heldout, "model": base})


if __name__ == "__main__":
    run_builder(main)
