"""Builds the world and the cold start once, and keeps them in a cache: ``python -m agentic_video.toyworld.build``."""

import argparse
import hashlib
import json
import os
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from agentic_video.systems.prompts import load_prompt
from agentic_video.toyworld.cold_start import ColdStartRecipe, make_cold_start
from agentic_video.toyworld.gate import GateLimits, check
from agentic_video.toyworld.laptop import PROMPT, laptop_system
from agentic_video.toyworld.model import ModelRecipe
from agentic_video.toyworld.questions import build_world
from agentic_video.toyworld.world import WorldRecipe

VERSION = 1
"""Raise it when a change of the code changes what is built."""

DEFAULT_CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "agentic_video" / "toyworld"


@dataclass(frozen=True)
class ToyRecipe:
    """Everything that a build depends on.

    Attributes:
        train: Number of training questions.
        heldout: Number of held-out questions.
        seed: Number of the world.
    """

    train: int = 640
    heldout: int = 96
    seed: int = 0
    world: WorldRecipe = field(default_factory=WorldRecipe)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    cold_start: ColdStartRecipe = field(default_factory=ColdStartRecipe)
    gate: GateLimits = field(default_factory=GateLimits)

    @property
    def key(self) -> str:
        """Name of the recipe's folder: it changes with any setting, the prompt and the version."""
        content = {"version": VERSION, "prompt": load_prompt(PROMPT), **asdict(self)}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ToyPaths:
    """What a build leaves behind."""

    folder: Path

    @property
    def train(self) -> Path:
        """Training rows."""
        return self.folder / "world" / "train.parquet"

    @property
    def heldout(self) -> Path:
        """Held-out rows."""
        return self.folder / "world" / "heldout.parquet"

    @property
    def model(self) -> Path:
        """Checkpoint of the cold start."""
        return self.folder / "model"

    @property
    def report(self) -> Path:
        """The gate's figures and the build's times as JSON."""
        return self.folder / "report.json"


def ensure(cache: Path = DEFAULT_CACHE, recipe: ToyRecipe | None = None) -> ToyPaths:
    """The files of a recipe, built if they aren't in the cache.

    A build happens in a temporary folder beside its final one and is renamed when the gate has passed: an interrupted
    or unfit build leaves nothing that a later call could mistake for a finished one.

    Raises:
        GateError: The cold start came out unfit.
    """
    recipe = recipe or ToyRecipe()
    paths = ToyPaths(cache / recipe.key)
    if paths.folder.is_dir():
        print(f"[toyworld] found {paths.folder}", flush=True)
        return paths
    cache.mkdir(parents=True, exist_ok=True)
    building = ToyPaths(Path(tempfile.mkdtemp(prefix=f".{recipe.key}-", dir=cache)))
    print(f"[toyworld] building {paths.folder}", flush=True)
    try:
        _build(building, recipe)
        try:
            building.folder.rename(paths.folder)
        except OSError:
            # Another process finished the same recipe first; its files are as good.
            if not paths.folder.is_dir():
                raise
    finally:
        shutil.rmtree(building.folder, ignore_errors=True)
    return paths


def _build(paths: ToyPaths, recipe: ToyRecipe) -> None:
    started = time.monotonic()
    paths.train.parent.mkdir()
    build_world(paths.train.parent, train=recipe.train, heldout=recipe.heldout, seed=recipe.seed, recipe=recipe.world)
    world_done = time.monotonic()
    make_cold_start(paths.model, recipe.world, recipe.model, recipe.cold_start, recipe.seed)
    trained = time.monotonic()
    report = check(paths.model, paths.heldout, laptop_system(recipe.world.overview_frames), recipe.gate)
    print(f"[toyworld] {report}", flush=True)
    seconds = {
        "world": world_done - started,
        "cold_start": trained - world_done,
        "gate": time.monotonic() - trained,
    }
    print(f"[toyworld] built in {sum(seconds.values()):.0f} s: "
          + ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items()), flush=True)  # fmt: skip
    content = {"recipe": asdict(recipe), "gate": asdict(report), "seconds": seconds}
    paths.report.write_text(json.dumps(content, indent=2))


def main() -> None:
    """Command line of the build."""
    default = ToyRecipe()
    parser = argparse.ArgumentParser(prog="python -m agentic_video.toyworld.build", description=__doc__)
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of finished builds (%(default)s)")
    parser.add_argument("--train", type=int, default=default.train, help="training questions (%(default)s)")
    parser.add_argument("--heldout", type=int, default=default.heldout, help="held-out questions (%(default)s)")
    parser.add_argument("--seed", type=int, default=default.seed, help="number of the world (%(default)s)")
    parser.add_argument("--min-seconds", type=int, default=default.world.min_seconds, help="shortest video")
    parser.add_argument("--max-seconds", type=int, default=default.world.max_seconds, help="longest video")
    arguments = parser.parse_args()
    world = WorldRecipe(min_seconds=arguments.min_seconds, max_seconds=arguments.max_seconds)
    recipe = ToyRecipe(train=arguments.train, heldout=arguments.heldout, seed=arguments.seed, world=world)
    paths = ensure(arguments.cache, recipe)
    for name in ("train", "heldout", "model", "report"):
        print(f"{name}: {getattr(paths, name)}")


if __name__ == "__main__":
    main()
