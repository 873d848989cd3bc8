"""Builds a recipe's synthetic world and tiny models once: ``python -m agentic_video.toyworld.build``."""

import json
import shutil
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import limits_of, settings_of
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import System
from agentic_video.toyworld.cache import (
    DEFAULT_CACHE,
    base_facts,
    content_key,
    ensure_base,
    ensure_world,
    once,
    system_facts,
)
from agentic_video.toyworld.clip import make_clip
from agentic_video.toyworld.cold_start import make_cold_start
from agentic_video.toyworld.command_line import print_paths, recipe_parser
from agentic_video.toyworld.gate import GateError, Setting, check
from agentic_video.toyworld.oracles import turns_of
from agentic_video.toyworld.recipe import ToyRecipe, toy_recipe


@dataclass(frozen=True)
class ToyPaths:
    """What a build leaves behind.

    Attributes:
        world: Folder of the videos and rows.
        base: Checkpoint of the base model.
        model: Checkpoint of the cold start; None where none was asked for.
        clip: Folder of the tiny CLIP; None where the recipe has none.
    """

    world: Path
    base: Path
    model: Path | None = None
    clip: Path | None = None

    @property
    def train(self) -> Path:
        """Training rows."""
        return self.world / "train.parquet"

    @property
    def heldout(self) -> Path:
        """Held-out rows."""
        return self.world / "heldout.parquet"


def ensure(
    system: System, limits: TokenLimits, recipe: ToyRecipe, cache: Path = DEFAULT_CACHE, *, cold_start: bool = True
) -> ToyPaths:
    """The world and the models of a recipe, built as far as they aren't in the cache. Recipes share what is equal.

    Args:
        system: Whose grammar the cold start teaches.
        limits: Token budgets of its episodes.
        recipe: What to build.
        cache: Folder of finished builds.
        cold_start: False where another checkpoint is trained or evaluated.

    Raises:
        GateError: The cold start came out unfit.
        ValueError: The system has no oracle.
    """
    turns = turns_of(system, recipe.oracle)
    world = ensure_world(recipe, cache)
    clip = None
    if recipe.clip:
        clip_key = content_key(asdict(recipe.world), recipe.seed)
        clip = once(cache / f"clip-{clip_key}", lambda folder: make_clip(folder, recipe.world, recipe.seed))
    base = ensure_base(recipe, cache)
    if not cold_start:
        return ToyPaths(world.train.parent, base, clip=clip)
    setting = Setting(system, limits, turns, clip, base if recipe.verifier else None)
    model_key = content_key(
        *system_facts(system, limits),
        asdict(recipe),
        content_key(*base_facts(recipe)),
        turns.__module__,
    )
    model = once(
        cache / f"{system.name}-{model_key}",
        lambda folder: _teach(folder, base, world.heldout, setting, recipe),
    )
    return ToyPaths(world.train.parent, base, model, clip)


def _teach(folder: Path, base: Path, rows: Path, setting: Setting, recipe: ToyRecipe) -> None:
    """Teach the base model a system until its gate lets it pass.

    Each attempt has other demonstrations. It goes on from the one before, or from the base model again where that one
    knew too much already.

    Args:
        folder: Gets the checkpoint and the gate's report, ``gate.json``.
        base: Checkpoint of the base model.
        rows: File of the questions that the gate asks.
        setting: How its episodes are played.
        recipe: What to build.

    Raises:
        GateError: It is still unfit after as many attempts as the recipe allows.
    """
    start = base
    with tempfile.TemporaryDirectory() as scratch:
        for attempt in range(recipe.attempts):
            teaching = replace(recipe.cold_start, seed=recipe.cold_start.seed + attempt)
            candidate = Path(scratch) / str(attempt)
            make_cold_start(
                candidate, start, setting.system, setting.limits, setting.turns, recipe.world, teaching, recipe.seed
            )
            try:
                report = check(candidate, rows, setting, recipe.gate)
            except GateError as error:
                if attempt + 1 == recipe.attempts:
                    raise
                print(f"[toyworld] teaching it once more: {error}", flush=True)
                start = base if error.too_good else candidate
            else:
                print(f"[toyworld] {report}", flush=True)
                (candidate / "gate.json").write_text(json.dumps(asdict(report), indent=2))
                shutil.copytree(candidate, folder, dirs_exist_ok=True)
                return


def main() -> None:
    """Command line of the build."""
    parser = recipe_parser("agentic_video.toyworld.build", __doc__, "laptop")
    parser.add_argument("--no-cold-start", action="store_true", help="the model is another one; make what it needs")
    arguments = parser.parse_args()
    config = compose_recipe(arguments.recipe, arguments.profile, arguments.overrides)
    recipe = toy_recipe(config)
    system, limits = settings_of(config).system, limits_of(config)
    paths = ensure(system, limits, recipe, arguments.cache, cold_start=not arguments.no_cold_start)
    print_paths(
        {
            "train": paths.train,
            "heldout": paths.heldout,
            "base": paths.base,
            "model": paths.model,
            "clip": paths.clip,
            "verifier": paths.base if recipe.verifier else None,
        }
    )


if __name__ == "__main__":
    main()
