"""Builds a recipe's synthetic world and tiny models once: ``python -m agentic_video.toyworld.build``."""

import argparse
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agentic_video.recipe import compose_recipe
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.settings import dataclass_from, limits_of, settings_of
from agentic_video.systems.base import System
from agentic_video.systems.prompts import load_prompt
from agentic_video.toyworld.base import BaseRecipe, make_base, tokenizer_corpus
from agentic_video.toyworld.cold_start import ColdStartRecipe, make_cold_start
from agentic_video.toyworld.gate import GateError, GateLimits, Setting, check
from agentic_video.toyworld.model import ModelRecipe
from agentic_video.toyworld.oracles import turns_of
from agentic_video.toyworld.questions import World, build_world
from agentic_video.toyworld.world import WorldRecipe

VERSION = 4
"""Raise it when a change of the code changes what is built."""

DEFAULT_CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "agentic_video" / "toyworld"


@dataclass(frozen=True)
class ToyRecipe:
    """What a recipe's laptop profile builds: the config's block ``agentic_video.toyworld``.

    Attributes:
        train: Number of training questions.
        heldout: Number of held-out questions.
        seed: Number of the world.
        oracle: Module of the oracle; by default the packaged one with the system's name.
        clip: Whether the system finds frames by text: a tiny CLIP is trained too.
        witness: Whether its reward asks a witness: the tiny base model is served.
        attempts: How often the cold start is taught, each time on top of the last and with other demonstrations,
            before its gate refuses it.
    """

    train: int = 480
    heldout: int = 96
    seed: int = 0
    oracle: str = ""
    clip: bool = False
    witness: bool = False
    attempts: int = 3
    world: WorldRecipe = field(default_factory=WorldRecipe)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    base: BaseRecipe = field(default_factory=BaseRecipe)
    cold_start: ColdStartRecipe = field(default_factory=ColdStartRecipe)
    gate: GateLimits = field(default_factory=GateLimits)


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


def toy_recipe(config: DictConfig) -> ToyRecipe:
    """The recipe in a run's config.

    Raises:
        ValueError: A key doesn't exist; the message names it.
    """
    block = config.agentic_video.get("toyworld")
    values = OmegaConf.to_container(block, resolve=True) if block is not None else {}
    recipe: ToyRecipe = dataclass_from(ToyRecipe, values, "agentic_video.toyworld")
    return recipe


def _key(*content: Any) -> str:
    return hashlib.sha256(json.dumps([VERSION, *content], sort_keys=True, default=str).encode()).hexdigest()[:12]


def once(folder: Path, build: Callable[[Path], None]) -> Path:
    """A cached folder, built if it isn't there.

    A build happens in a temporary folder beside its final one and is renamed when it is done: an interrupted one
    leaves nothing that a later call could mistake for a finished one.
    """
    if folder.is_dir():
        print(f"[toyworld] found {folder}", flush=True)
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    building = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        build(building)
        try:
            building.rename(folder)
        except OSError:
            # Another process finished the same build first; its files are as good.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    print(f"[toyworld] built {folder} in {time.monotonic() - started:.0f} s", flush=True)
    return folder


def ensure_world(recipe: ToyRecipe, cache: Path = DEFAULT_CACHE) -> World:
    """The videos and rows of a recipe, built if they aren't in the cache."""

    def make_world(folder: Path) -> None:
        build_world(folder, train=recipe.train, heldout=recipe.heldout, seed=recipe.seed, recipe=recipe.world)

    return World.of(once(cache / f"world-{_key(*_world_facts(recipe))}", make_world))


def _world_facts(recipe: ToyRecipe) -> tuple[Any, ...]:
    return asdict(recipe.world), recipe.train, recipe.heldout, recipe.seed


def ensure_base(recipe: ToyRecipe, cache: Path = DEFAULT_CACHE) -> Path:
    """The base model of a recipe, built if it isn't in the cache."""
    key = _key(*_base_facts(recipe))
    return once(cache / f"base-{key}", lambda folder: make_base(folder, recipe.model, recipe.base))


def _base_facts(recipe: ToyRecipe) -> tuple[Any, ...]:
    return asdict(recipe.model), asdict(recipe.base), tokenizer_corpus()


def ensure_demonstrations(
    system: System, limits: TokenLimits, recipe: ToyRecipe, cache: Path = DEFAULT_CACHE
) -> tuple[Path, Path, Path]:
    """What the laptop's SFT starts from: the oracle's records of training and held-out questions, and the base model.

    Raises:
        ValueError: The system has no oracle.
    """
    from agentic_video.toyworld.demonstrate import write_demonstrations

    turns = turns_of(system, recipe.oracle)
    world, base = ensure_world(recipe, cache), ensure_base(recipe, cache)
    facts = _key(repr(system), load_prompt(str(getattr(system, "prompt", ""))), asdict(limits), *_world_facts(recipe),
                 *_base_facts(recipe), turns.__module__)  # fmt: skip

    def make(folder: Path) -> None:
        write_demonstrations(folder, world, base, system, limits, turns, recipe.world)

    folder = once(cache / f"{system.name}-demonstrations-{facts}", make)
    return folder / "train.jsonl", folder / "heldout.jsonl", base


def ensure(
    system: System, limits: TokenLimits, recipe: ToyRecipe, cache: Path = DEFAULT_CACHE, *, cold_start: bool = True
) -> ToyPaths:
    """The world and the models of a recipe, built as far as they aren't in the cache. Recipes share what is equal.

    Args:
        system: Whose grammar the cold start teaches.
        limits: Token budgets of its episodes.
        cold_start: False where another checkpoint is trained or evaluated.

    Raises:
        GateError: The cold start came out unfit.
        ValueError: The system has no oracle.
    """
    turns = turns_of(system, recipe.oracle)
    world = ensure_world(recipe, cache)
    clip = None
    if recipe.clip:
        from agentic_video.toyworld.clip import make_clip

        clip_key = _key(asdict(recipe.world), recipe.seed)
        clip = once(cache / f"clip-{clip_key}", lambda folder: make_clip(folder, recipe.world, recipe.seed))
    base = ensure_base(recipe, cache)
    if not cold_start:
        return ToyPaths(world.train.parent, base, clip=clip)

    def make_model(folder: Path) -> None:
        setting = Setting(system, limits, turns, clip, base if recipe.witness else None)
        start = base
        with tempfile.TemporaryDirectory() as scratch:
            for attempt in range(recipe.attempts):
                teaching = replace(recipe.cold_start, seed=recipe.cold_start.seed + attempt)
                candidate = Path(scratch) / str(attempt)
                make_cold_start(candidate, start, system, limits, turns, recipe.world, teaching, recipe.seed)
                try:
                    report = check(candidate, world.heldout, setting, recipe.gate)
                except GateError as error:
                    if attempt + 1 == recipe.attempts:
                        raise
                    print(f"[toyworld] teaching it once more: {error}", flush=True)
                    start = candidate
                else:
                    print(f"[toyworld] {report}", flush=True)
                    (candidate / "gate.json").write_text(json.dumps(asdict(report), indent=2))
                    shutil.copytree(candidate, folder, dirs_exist_ok=True)
                    return

    prompt = load_prompt(str(getattr(system, "prompt", "")))
    model_key = _key(repr(system), prompt, asdict(limits), asdict(recipe), _key(*_base_facts(recipe)), turns.__module__)
    model = once(cache / f"{system.name}-{model_key}", make_model)
    return ToyPaths(world.train.parent, base, model, clip)


def main() -> None:
    """Command line of the build."""
    parser = argparse.ArgumentParser(prog="python -m agentic_video.toyworld.build", description=__doc__)
    parser.add_argument("recipe", type=Path, help="folder of the recipe, e.g. recipes/videozoomer")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides")
    parser.add_argument("--profile", default="laptop", help="name of the recipe's config (%(default)s)")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of finished builds (%(default)s)")
    parser.add_argument("--no-cold-start", action="store_true", help="the model is another one; make what it needs")
    arguments = parser.parse_args()
    config = compose_recipe(arguments.recipe, arguments.profile, arguments.overrides)
    recipe = toy_recipe(config)
    system, limits = settings_of(config).system, limits_of(config)
    paths = ensure(system, limits, recipe, arguments.cache, cold_start=not arguments.no_cold_start)
    for name in ("train", "heldout", "base", "model", "clip"):
        if getattr(paths, name) is not None:
            print(f"{name}: {getattr(paths, name)}")
    if recipe.witness:
        print(f"witness: {paths.base}")


if __name__ == "__main__":
    main()
