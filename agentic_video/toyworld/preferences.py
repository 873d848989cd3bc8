"""Writes labelled episodes of scripted agents on the synthetic world, for the laptop's KTO.

Desirable ones look where the question says and answer right. Undesirable ones are EVA's failure cases (section 3.2): an
answer without evidence, at once or after looking elsewhere.

``python -m agentic_video.toyworld.preferences recipes/eva`` builds what is missing and prints its paths."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import episode_limits, settings_of
from agentic_video.datasets.rows import load_rows
from agentic_video.rollout.tokens import ChatFormat, TokenLimits
from agentic_video.systems.base import EpisodeView, System
from agentic_video.tools.base import Video
from agentic_video.toyworld.build import ensure
from agentic_video.toyworld.cache import Cache, taught
from agentic_video.toyworld.command_line import print_paths, run_builder, stage_parser
from agentic_video.toyworld.demonstrate import RECORDS, write_located
from agentic_video.toyworld.model import load_chat_format
from agentic_video.toyworld.oracles import Turns, asides_of, turns_of
from agentic_video.toyworld.questions import World
from agentic_video.toyworld.recipe import toy_recipe
from agentic_video.toyworld.scenes import SceneSource
from agentic_video.toyworld.scripted import play_script
from agentic_video.toyworld.world import Scene, WorldRecipe, make_scene
from agentic_video.types.record import Record
from agentic_video.types.row import LETTERS, VideoQA
from agentic_video.video.store import FrameStore

DESIRABLE = 0.63
"""Share of chosen trajectories (section 4.1)."""

MISSED_SECONDS = (3, 10)
"""Distance of undesirable looks in seconds: from, and below."""


async def labelled(
    rows: Sequence[VideoQA],
    chat_format: ChatFormat,
    system: System,
    limits: TokenLimits,
    turns: Turns,
    recipe: WorldRecipe,
    seed: int,
) -> list[Record]:
    """One labelled episode for each question of a world."""
    store, rng = FrameStore(), np.random.default_rng([seed, 3])
    records = []
    for number, qa in enumerate(rows):
        scene = make_scene(int(qa.extra["seed"]), recipe)
        view = EpisodeView(qa, await Video.open(qa.video, store))
        desirable = bool(rng.random() < DESIRABLE)
        said = turns(view, scene.aim, scene.answer, scene.letter) if desirable else _fail(view, scene, turns, rng)
        finder = SceneSource({qa.video: scene}, recipe)
        played = await play_script(
            said, qa, system, limits, chat_format, store, finder, rollout_index=number, asides=asides_of(turns)
        )
        label = "desirable" if desirable else "undesirable"
        records.append(Record(qa, played.trajectory, provenance={"source": "script", "label": label}))
    return records


def _fail(view: EpisodeView, scene: Scene, turns: Turns, rng: np.random.Generator) -> tuple[str, ...]:
    """A wrong answer, at once or after looking elsewhere."""
    wrong = [option for option in range(len(scene.options)) if scene.options[option] != scene.answer]
    # no event is so early
    word, letter = "0 - 1", ""
    if wrong:
        guess = int(rng.choice(wrong))
        word, letter = scene.options[guess], LETTERS[guess]
    missed = None
    if scene.aim is not None:
        missed = scene.aim + int(rng.integers(*MISSED_SECONDS)) * int(rng.choice([-1, 1]))
        missed = min(max(missed, 1), scene.seconds - 2)
    said = turns(view, missed, word, letter)
    return said[-1:] if missed is None or rng.random() < 0.5 else said


def write_preferences(
    folder: Path, world: World, model: Path, system: System, limits: TokenLimits, turns: Turns, recipe: WorldRecipe
) -> None:
    """Write labelled episodes on every question of a world to ``train.jsonl`` and ``heldout.jsonl``."""
    chat_format = load_chat_format(model)
    for seed, (split, file) in enumerate((("train", world.train), ("heldout", world.heldout))):
        rows, _ = load_rows([file])
        records = asyncio.run(labelled(rows, chat_format, system, limits, turns, recipe, seed))
        with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as written:
            for record in records:
                write_located(written, record, folder)
        print(f"[toyworld] {system.name}: {len(records)} labelled episodes on {split} questions", flush=True)


def main() -> None:
    """Run the builder from the command line."""
    arguments = stage_parser("agentic_video.toyworld.preferences", __doc__, "kto_laptop").parse_args()
    config = compose_recipe(arguments.recipe, arguments.profile, arguments.overrides)
    settings = settings_of(config)
    system, limits, recipe = taught(settings.system), episode_limits(config.data, settings), toy_recipe(config)
    turns = turns_of(system, recipe.oracle)
    with Cache(arguments.cache, arguments.dry_run, recipe.shipped) as cache:
        # KTO starts from the cold start, as GRPO's laptop profile does
        paths = ensure(system, limits, recipe, cache)
        if arguments.no_data:
            print_paths({"model": paths.model})
            return
        assert paths.world is not None and paths.model is not None
        world, model = World.of(paths.world), paths.model

        def make(folder: Path) -> None:
            write_preferences(folder, world, model, system, limits, turns, recipe.world)

        # the model's name depends on the system, its limits and its oracle
        facts = {"world": paths.world.name, "model": model.name, "records": RECORDS}
        folder = cache.once("preferences", facts, make)
    print_paths({"train": folder / "train.jsonl", "heldout": folder / "heldout.jsonl", "model": model})


if __name__ == "__main__":
    run_builder(main)
