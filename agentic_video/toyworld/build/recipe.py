"""Configuration of the toy world: the config's block ``agentic_video.toyworld``."""

from dataclasses import dataclass, field, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf
from pydantic import NonNegativeInt, PositiveInt

from agentic_video.config.settings import settings_of
from agentic_video.config.typed import dataclass_from
from agentic_video.systems.base import System
from agentic_video.toyworld.build.base import BaseRecipe
from agentic_video.toyworld.build.cold_start import ColdStartRecipe
from agentic_video.toyworld.build.gate import GateLimits
from agentic_video.toyworld.model import ModelRecipe
from agentic_video.toyworld.world import WorldRecipe

FORMER_NAMES = {
    "off_aim": "aim_error_rate",
    "thoughtless": "drop_thought_rate",
    "astray": "random_aim_rate",
}
"""Present keys of ``cold_start`` by earlier ones, which are still read."""


@dataclass(frozen=True)
class ToyRecipe:
    """Configuration of a recipe's toy world: the config's block ``agentic_video.toyworld``.

    Attributes:
        oracle: Module of the oracle; by default the one next to the system.
        clip: Train a tiny CLIP too, for systems that find frames by text.
        verifier: Serve the tiny base model as the verifier of the reward.
        attempts: Attempts at a cold start before its gate refuses it; each has other demonstrations and continues from
            the last, unless that knew too much already.
        shipped: Use models that come with the package if they equal what would be built; False builds them.
    """

    train: PositiveInt = 320
    heldout: PositiveInt = 192
    seed: NonNegativeInt = 0
    oracle: str = ""
    clip: bool = False
    verifier: bool = False
    attempts: PositiveInt = 3
    shipped: bool = True
    world: WorldRecipe = field(default_factory=WorldRecipe)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    base: BaseRecipe = field(default_factory=BaseRecipe)
    cold_start: ColdStartRecipe = field(default_factory=ColdStartRecipe)
    gate: GateLimits = field(default_factory=GateLimits)


def first_view_counts(system: System) -> tuple[int, ...]:
    """Numbers of evenly spaced frames with which rollouts begin, ascending.

    From the system's ``first_view_counts()``, else its ``first_view_fields``; empty if no number is fixed."""
    if hasattr(system, "first_view_counts"):
        counts: tuple[int, ...] = system.first_view_counts()
        return counts
    if getattr(system, "overview", "uniform") not in ("uniform", "rate"):
        return ()
    names = getattr(system, "first_view_fields", ("overview_frames",))
    return tuple(sorted({getattr(system, name) for name in names if hasattr(system, name)}))


def toy_recipe(config: DictConfig) -> ToyRecipe:
    """The toy world of a run's config; events avoid the frames that the system's rollouts begin with."""
    block = config.agentic_video.get("toyworld")
    values: Any = OmegaConf.to_container(block, resolve=True) if block is not None else {}
    taught = values.get("cold_start") or {}
    for former, name in FORMER_NAMES.items():
        if former in taught:
            taught[name] = taught.pop(former)
    recipe: ToyRecipe = dataclass_from(ToyRecipe, values, "agentic_video.toyworld")
    if not {"overview_frames", "other_overviews"}.isdisjoint(values.get("world") or {}):
        return recipe
    counts = first_view_counts(settings_of(config).system)
    others = tuple(count for count in counts if count != recipe.world.overview_frames)
    return replace(recipe, world=replace(recipe.world, other_overviews=others))
