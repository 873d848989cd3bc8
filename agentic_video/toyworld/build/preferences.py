"""Writes labelled episodes of scripted agents on the synthetic world, for the laptop's KTO.

Desirable ones look where the question says and answer right. Undesirable ones are EVA's failure cases (section 3.2): an
answer without evidence, at once or after looking elsewhere.

``python -m agentic_video.toyworld.build.preferences recipes/eva`` builds what is missing and prints its paths."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import episode_limits, settings_of
from agentic_video.systems.base import EpisodeView
from agentic_video.toyworld.build.cache import Cache, taught
from agentic_video.toyworld.build.command_line import print_paths, run_builder, stage_parser
from agentic_video.toyworld.build.demonstrate import RECORDS, Script, write_scripted
from agentic_video.toyworld.build.ensure import ensure
from agentic_video.toyworld.build.recipe import toy_recipe
from agentic_video.toyworld.build.scripted import Setting
from agentic_video.toyworld.oracles import Turns, turns_of
from agentic_video.toyworld.questions import World
from agentic_video.toyworld.world import Scene, WorldRecipe
from agentic_video.types.row import LETTERS

DESIRABLE = 0.63
"""Share of chosen trajectories (section 4.1)."""

MISSED_SECONDS = (3, 10)
"""Distance of undesirable looks in seconds: from, and below."""


def label_script(setting: Setting) -> Script:
    """Episodes of which a share is desirable."""

    def script(view: EpisodeView, scene: Scene, rng: np.random.Generator) -> tuple[Sequence[str], Mapping[str, str]]:
        if rng.random() < DESIRABLE:
            said, label = setting.turns(view, scene.aim, scene.answer, scene.letter), "desirable"
        else:
            said, label = _fail(view, scene, setting.turns, rng), "undesirable"
        return said, {"source": "script", "label": label}

    return script


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


def write_preferences(folder: Path, world: World, model: Path, setting: Setting, recipe: WorldRecipe) -> None:
    """Write labelled episodes on every question of a world to ``train.jsonl`` and ``heldout.jsonl``."""
    write_scripted(folder, world, model, setting, recipe, label_script(setting), "labelled episodes")


def main() -> None:
    """Run the builder from the command line."""
    arguments = stage_parser("agentic_video.toyworld.build.preferences", __doc__, "kto_laptop").parse_args()
    config = compose_recipe(arguments.recipe, arguments.profile, arguments.overrides)
    settings = settings_of(config)
    system, limits, recipe = taught(settings.system), episode_limits(config.data, settings), toy_recipe(config)
    setting = Setting(system, limits, turns_of(system, recipe.oracle))
    with Cache(arguments.cache, arguments.dry_run, recipe.shipped) as cache:
        # KTO starts from the cold start, as GRPO's laptop profile does
        paths = ensure(system, limits, recipe, cache)
        if arguments.no_data:
            print_paths({"model": paths.model})
            return
        assert paths.world is not None and paths.model is not None
        world, model = World.of(paths.world), paths.model

        def make(folder: Path) -> None:
            write_preferences(folder, world, model, setting, recipe.world)

        # the model's name depends on the system, its limits and its oracle
        facts = {"world": paths.world.name, "model": model.name, "records": RECORDS}
        folder = cache.once("preferences", facts, make)
    print_paths({"train": folder / "train.jsonl", "heldout": folder / "heldout.jsonl", "model": model})


if __name__ == "__main__":
    run_builder(main)
