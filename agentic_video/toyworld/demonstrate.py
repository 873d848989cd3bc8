"""Writes demonstrations of the oracle on the synthetic world as trajectory records: what the laptop's SFT learns from.

``python -m agentic_video.toyworld.demonstrate recipes/<system>`` builds what is missing and prints where it is.
"""

import argparse
import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

from transformers import AutoConfig, AutoTokenizer

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import episode_limits, settings_of
from agentic_video.datasets.rows import load_rows
from agentic_video.rollout.episode import play
from agentic_video.rollout.replay import ScriptEngine, written_ids
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.prompts import load_prompt
from agentic_video.tools.base import Video
from agentic_video.toyworld.cache import (
    DEFAULT_CACHE,
    base_facts,
    content_key,
    ensure_base,
    ensure_world,
    once,
    world_facts,
)
from agentic_video.toyworld.model import image_processor
from agentic_video.toyworld.oracles import Turns, turns_of
from agentic_video.toyworld.questions import World
from agentic_video.toyworld.recipe import ToyRecipe, toy_recipe
from agentic_video.toyworld.scenes import SceneSource
from agentic_video.toyworld.world import WorldRecipe, make_scene
from agentic_video.types.record import Record, write_record
from agentic_video.types.row import VideoQA
from agentic_video.video.store import FrameStore

GROUP = 8
"""Rollouts of a group: systems that show each of them something else are shown in all their ways."""


def write_demonstrations(
    folder: Path, world: World, base: Path, system: System, limits: TokenLimits, turns: Turns, recipe: WorldRecipe
) -> None:
    """Play the oracle on every question of a world, and write its episodes to ``train.jsonl`` and ``heldout.jsonl``.

    Args:
        folder: Gets the files.
        base: Checkpoint whose tokens the records hold.
        limits: Token budgets of the episodes.
        turns: The oracle.

    Raises:
        RuntimeError: An episode didn't end with an answer.
    """
    chat_format = ChatFormat(
        AutoTokenizer.from_pretrained(base), image_processor(AutoConfig.from_pretrained(base).model_type)
    )
    for split in ("train", "heldout"):
        rows, _ = load_rows([getattr(world, split)])

        async def write(path: Path, rows: list[VideoQA] = rows) -> None:
            with path.open("w", encoding="utf-8") as file:
                async for record in demonstrations(rows, chat_format, system, limits, turns, recipe):
                    write_record(file, record)

        asyncio.run(write(folder / f"{split}.jsonl"))
        print(f"[toyworld] {system.name}: {len(rows)} demonstrations on {split} questions", flush=True)


async def demonstrations(
    rows: list[VideoQA], chat_format: ChatFormat, system: System, limits: TokenLimits, turns: Turns, recipe: WorldRecipe
) -> AsyncIterator[Record]:
    """The oracle's episodes on some rows of a world, their videos read from their files."""
    store = FrameStore()
    for number, qa in enumerate(rows):
        scene = make_scene(int(qa.extra["seed"]), recipe)
        view = EpisodeView(qa, await Video.open(qa.video, store))
        aim = None if scene.event_time is None else math.floor(scene.event_time)
        said = turns(view, aim, scene.answer, scene.letter)
        engine = ScriptEngine([written_ids(text, chat_format, system.stop) for text in said])
        policy = TokenPolicy(engine, chat_format, limits, system)
        # Frames by text come from the scene itself: a demonstration shows what a good search finds.
        finder = SceneSource({qa.video: scene}, recipe)
        trajectory = await play(system, policy, qa, store, finder, rollout_index=number % GROUP)
        if trajectory.answer is None:
            raise RuntimeError(
                f"a demonstration of {system.name} ended with {trajectory.end}: {trajectory.error or said}"
            )
        yield Record(qa, trajectory, provenance={"source": "oracle"})


def ensure_demonstrations(
    system: System, limits: TokenLimits, recipe: ToyRecipe, cache: Path = DEFAULT_CACHE
) -> tuple[Path, Path, Path]:
    """What the laptop's SFT starts from: the oracle's records of training and held-out questions, and the base model.

    Raises:
        ValueError: The system has no oracle.
    """
    turns = turns_of(system, recipe.oracle)
    world, base = ensure_world(recipe, cache), ensure_base(recipe, cache)
    facts = content_key(repr(system), load_prompt(str(getattr(system, "prompt", ""))), asdict(limits), *world_facts(recipe),
                 *base_facts(recipe), turns.__module__)  # fmt: skip

    def make(folder: Path) -> None:
        write_demonstrations(folder, world, base, system, limits, turns, recipe.world)

    folder = once(cache / f"{system.name}-demonstrations-{facts}", make)
    return folder / "train.jsonl", folder / "heldout.jsonl", base


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m agentic_video.toyworld.demonstrate", description=__doc__)
    parser.add_argument("recipe", type=Path, help="folder of the recipe, e.g. recipes/videozoomer")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides")
    parser.add_argument("--profile", default="sft_laptop", help="name of the recipe's config (%(default)s)")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of finished builds (%(default)s)")
    arguments = parser.parse_args()
    config = compose_recipe(arguments.recipe, arguments.profile, arguments.overrides)
    settings = settings_of(config)
    limits = episode_limits(config.data, settings)
    train, heldout, base = ensure_demonstrations(settings.system, limits, toy_recipe(config), arguments.cache)
    for name, path in (("train", train), ("heldout", heldout), ("model", base)):
        print(f"{name}: {path}")


if __name__ == "__main__":
    main()
