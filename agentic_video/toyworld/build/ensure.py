"""A recipe's synthetic world and tiny models, each built once."""

import json
import shutil
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import System
from agentic_video.toyworld.build.cache import Cache, Facts, base_facts, ensure_base, ensure_world, system_facts, taught
from agentic_video.toyworld.build.clip import make_clip
from agentic_video.toyworld.build.cold_start import make_cold_start
from agentic_video.toyworld.build.gate import GateError, check
from agentic_video.toyworld.build.recipe import ToyRecipe
from agentic_video.toyworld.build.rehearsal import check_oracle
from agentic_video.toyworld.build.scripted import Setting
from agentic_video.toyworld.build.shares import SHARES
from agentic_video.toyworld.oracles import CustomVocabulary, Turns, own_words, turns_of
from agentic_video.toyworld.questions import World

Model = Literal["cold-start", "base", "none"]
"""Tiny model to build: with the system's grammar, its base, or none."""

GATE_FILE = "gate.json"
"""File of a cold start with its gate's figures."""


@dataclass(frozen=True)
class ToyPaths:
    """Folders of a build: world, base model, cold start and CLIP; None for those not asked for."""

    world: Path | None = None
    base: Path | None = None
    model: Path | None = None
    clip: Path | None = None


def ensure(
    system: System,
    limits: TokenLimits,
    recipe: ToyRecipe,
    cache: Cache,
    *,
    data: bool = True,
    model: Model = "cold-start",
) -> ToyPaths:
    """Build the world and the models of a recipe that the cache lacks. Recipes share equal ones.

    Args:
        data: False if other rows are used.
    """
    turns = turns_of(system, recipe.oracle) if model == "cold-start" else None
    own, neutral = own_words(system, recipe.oracle), taught(system)
    facts = _cold_start_facts(neutral, limits, turns, recipe, own) if turns else {}
    if turns and not cache.dry and not cache.folder_of(system.name, facts).is_dir():
        cache.check_unfit(system.name, facts)
        print(f"[toyworld] {check_oracle(neutral, turns, recipe)}", flush=True)
    # Other processes write the videos while this one trains.
    with ThreadPoolExecutor(1) as beside:
        writing = beside.submit(ensure_world, recipe, cache) if data or turns else None
        if writing and cache.dry:
            writing.result()  # missing builds are printed in order
        clip = None
        if recipe.clip:
            scenes = {"world": asdict(recipe.world), "seed": recipe.seed}
            clip = cache.once("clip", scenes, lambda folder: make_clip(folder, recipe.world, recipe.seed))
        base = ensure_base(recipe, cache, own) if model != "none" or recipe.verifier else None
        paths = ToyPaths(base=base, clip=clip)
        if turns and writing and base:
            setting = Setting(neutral, limits, turns, clip, base if recipe.verifier else None)
            try:
                taught_model = cache.once(
                    system.name, facts, lambda folder: _teach(folder, base, writing, setting, recipe)
                )
            except GateError as error:
                cache.note_unfit(system.name, facts, str(error))
                raise
            paths = replace(paths, model=taught_model)
        return replace(paths, world=writing.result().train.parent) if writing else paths


def _cold_start_facts(
    system: System, limits: TokenLimits, turns: Turns, recipe: ToyRecipe, own: CustomVocabulary | None
) -> Facts:
    """Everything that a cold start depends on."""
    built = {name: value for name, value in asdict(recipe).items() if name not in ("train", "shipped")}
    return {
        **system_facts(system, limits, turns, recipe),
        "toyworld": built,
        "corpus": base_facts(recipe, own)["corpus"],
        "shares": SHARES,
    }


def remedies(recipe: ToyRecipe) -> dict[str, str]:
    """Command-line overrides by what they do, e.g. ``more cold_start.steps``."""
    key, taught = "++agentic_video.toyworld", recipe.cold_start
    values = {
        "more cold_start.steps": max(1, taught.steps * 3 // 2),
        "more cold_start.kept": taught.kept + 8,
        "more cold_start.demonstrations": taught.demonstrations * 3 // 2,
        "more cold_start.aim_error_rate": min(1.0, round(taught.aim_error_rate + 0.1, 3)),
        "less cold_start.aim_error_rate": round(taught.aim_error_rate * 0.75, 3),
        "less cold_start.direct": round(taught.direct / 2, 3),
        "less cold_start.habit": taught.habit // 10 * 10,
        "more base.reading_steps": max(1, recipe.base.reading_steps * 3 // 2),
    }
    return {what: f"{key}.{what.partition(' ')[2]}={value:g}" for what, value in values.items()}


def _teach(folder: Path, base: Path, world: Future[World], setting: Setting, recipe: ToyRecipe) -> None:
    """Train the base model on a system until it passes its gate.

    Each attempt has other demonstrations. It continues from the attempt before, or from the base model if that knew too
    much already."""
    start = base
    with tempfile.TemporaryDirectory() as scratch:
        for attempt in range(recipe.attempts):
            teaching = replace(recipe.cold_start, seed=recipe.cold_start.seed + attempt)
            candidate = Path(scratch) / str(attempt)
            make_cold_start(candidate, start, setting, recipe.world, teaching, recipe.seed)
            try:
                report = check(candidate, world.result().heldout, setting, recipe.gate, remedies(recipe))
            except GateError as error:
                if attempt + 1 == recipe.attempts:
                    raise
                print(f"[toyworld] teaching it once more: {error}", flush=True)
                start = base if error.too_good else candidate
            else:
                print(f"[toyworld] {report}", flush=True)
                (candidate / GATE_FILE).write_text(json.dumps(asdict(report), indent=2), encoding="utf-8")
                shutil.copytree(candidate, folder, dirs_exist_ok=True)
                return
