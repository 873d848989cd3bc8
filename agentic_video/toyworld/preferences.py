"""Writes labelled episodes of scripted agents on the synthetic world: what the laptop's KTO learns from.

Desirable ones look where the question says and answer right. Undesirable ones are EVA's failure cases (section 3.2): an
answer without evidence, given at once or after looking elsewhere.

``python -m agentic_video.toyworld.preferences recipes/eva`` builds what is missing and prints where it is.
"""

import argparse
import asyncio
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from transformers import AutoConfig, AutoTokenizer

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import episode_limits, settings_of
from agentic_video.datasets.rows import load_rows
from agentic_video.rollout.episode import play
from agentic_video.rollout.replay import ScriptEngine, written_ids
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy
from agentic_video.systems.base import EpisodeView, System
from agentic_video.tools.base import Video
from agentic_video.toyworld.build import ensure
from agentic_video.toyworld.cache import DEFAULT_CACHE, once
from agentic_video.toyworld.model import image_processor
from agentic_video.toyworld.oracles import Turns, turns_of
from agentic_video.toyworld.questions import World
from agentic_video.toyworld.recipe import toy_recipe
from agentic_video.toyworld.scenes import SceneSource
from agentic_video.toyworld.world import WorldRecipe, make_scene
from agentic_video.types.record import Record, write_record
from agentic_video.types.row import LETTERS, VideoQA
from agentic_video.video.store import FrameStore

DESIRABLE = 0.63
"""Share of chosen trajectories (section 4.1)."""

MISSED_SECONDS = (3, 10)
"""How far off the undesirable looks are: from, and below."""


async def labelled(
    rows: Sequence[VideoQA], chat_format: ChatFormat, system: System, limits: TokenLimits, turns: Turns,
    recipe: WorldRecipe, seed: int,
) -> list[Record]:  # fmt: skip
    """One labelled episode for each question of a world.

    Args:
        chat_format: Of the model whose tokens the records hold.
        limits: Token budgets of the episodes.
        turns: The oracle.
        recipe: Of the world that the questions are about.
        seed: Of the labels, and of what undesirable episodes do.

    Raises:
        RuntimeError: An episode didn't end with an answer.
    """
    store, rng = FrameStore(), np.random.default_rng([seed, 3])
    records = []
    for number, qa in enumerate(rows):
        scene = make_scene(int(qa.extra["seed"]), recipe)
        view = EpisodeView(qa, await Video.open(qa.video, store))
        aim = None if scene.event_time is None else math.floor(scene.event_time)
        said, desirable = turns(view, aim, scene.answer, scene.letter), bool(rng.random() < DESIRABLE)
        if not desirable:
            wrong = [option for option in range(len(scene.options)) if scene.options[option] != scene.answer]
            guess = int(rng.choice(wrong))
            missed = None
            if aim is not None:
                missed = aim + int(rng.integers(*MISSED_SECONDS)) * int(rng.choice([-1, 1]))
                missed = min(max(missed, 1), scene.seconds - 2)
            said = turns(view, missed, scene.options[guess], LETTERS[guess])
            if missed is None or rng.random() < 0.5:
                said = said[-1:]
        engine = ScriptEngine([written_ids(text, chat_format, system.stop) for text in said])
        policy = TokenPolicy(engine, chat_format, limits, system)
        finder = SceneSource({qa.video: scene}, recipe)
        trajectory = await play(system, policy, qa, store, finder, rollout_index=number)
        if trajectory.answer is None:
            raise RuntimeError(f"a scripted episode ended with {trajectory.end}: {trajectory.error or said}")
        label = "desirable" if desirable else "undesirable"
        records.append(Record(qa, trajectory, provenance={"source": "script", "label": label}))
    return records


def write_preferences(
    folder: Path, world: World, model: Path, system: System, limits: TokenLimits, turns: Turns, recipe: WorldRecipe
) -> None:
    """Write ``train.jsonl`` and ``heldout.jsonl``.

    Args:
        folder: Gets the files.
        model: Checkpoint whose tokens the records hold.
    """
    family = AutoConfig.from_pretrained(model).model_type
    chat_format = ChatFormat(AutoTokenizer.from_pretrained(model), image_processor(family))
    for seed, split in enumerate(("train", "heldout")):
        rows, _ = load_rows([getattr(world, split)])
        records = asyncio.run(labelled(rows, chat_format, system, limits, turns, recipe, seed))
        with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            for record in records:
                write_record(file, record)
        print(f"[toyworld] {system.name}: {len(records)} labelled episodes on {split} questions", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m agentic_video.toyworld.preferences", description=__doc__)
    parser.add_argument("recipe", type=Path, help="folder of the recipe, e.g. recipes/eva")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides")
    parser.add_argument("--profile", default="kto_laptop", help="name of the recipe's config (%(default)s)")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of finished builds (%(default)s)")
    arguments = parser.parse_args()
    config = compose_recipe(arguments.recipe, arguments.profile, arguments.overrides)
    settings = settings_of(config)
    system, limits, recipe = settings.system, episode_limits(config.data, settings), toy_recipe(config)
    turns = turns_of(system, recipe.oracle)
    # KTO goes on from what GRPO's laptop profile goes on from: the tiny model after its cold start
    paths = ensure(system, limits, recipe, arguments.cache)
    model = paths.model
    assert model is not None

    def make(folder: Path) -> None:
        world = World.of(paths.world)
        write_preferences(folder, world, model, system, limits, turns, recipe.world)

    # the model's name depends on the system, its limits and its oracle
    folder = once(arguments.cache / f"preferences-{paths.world.name}-{model.name}", make)
    for name, path in (("train", folder / "train.jsonl"), ("heldout", folder / "heldout.jsonl"), ("model", model)):
        print(f"{name}: {path}")


if __name__ == "__main__":
    main()
