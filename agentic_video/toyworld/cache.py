"""Finished builds, each in a folder that is named after what it was made from."""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import System
from agentic_video.systems.prompts import load_prompt
from agentic_video.toyworld.base import make_base, tokenizer_corpus
from agentic_video.toyworld.questions import World, build_world
from agentic_video.toyworld.recipe import ToyRecipe

VERSION = 4
"""Raise it when a change of the code changes what is built."""

DEFAULT_CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "agentic_video" / "toyworld"


def content_key(*content: Any) -> str:
    """A short name of what something is made from; another for any other content."""
    return hashlib.sha256(json.dumps([VERSION, *content], sort_keys=True, default=str).encode()).hexdigest()[:12]


def once(folder: Path, build: Callable[[Path], None]) -> Path:
    """A cached folder, built if it isn't there.

    A build happens in a temporary folder beside its final one and is renamed when it is done: an interrupted one
    leaves nothing that a later call could mistake for a finished one.

    Args:
        folder: Where it belongs.
        build: Fills the folder that it is given.
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

    return World.of(once(cache / f"world-{content_key(*world_facts(recipe))}", make_world))


def world_facts(recipe: ToyRecipe) -> tuple[Any, ...]:
    """What a recipe's world is made from, for :func:`content_key`."""
    return asdict(recipe.world), recipe.train, recipe.heldout, recipe.seed


def system_facts(system: System, limits: TokenLimits) -> tuple[Any, ...]:
    """What episodes of a system depend on, for :func:`content_key`: its constants, its instructions, its budgets."""
    return repr(system), load_prompt(system.prompt) if system.prompt else "", asdict(limits)


def ensure_base(recipe: ToyRecipe, cache: Path = DEFAULT_CACHE) -> Path:
    """The base model of a recipe, built if it isn't in the cache."""
    name = content_key(*base_facts(recipe))
    return once(cache / f"base-{name}", lambda folder: make_base(folder, recipe.model, recipe.base))


def base_facts(recipe: ToyRecipe) -> tuple[Any, ...]:
    """What a recipe's base model is made from, for :func:`content_key`."""
    return asdict(recipe.model), asdict(recipe.base), tokenizer_corpus()
