"""Checks of the numbers of a toy recipe, made before anything is built."""

import math
from typing import Any

from agentic_video.toyworld.world import WorldRecipe


def check_counts(recipe: Any, *names: str, least: int = 1, within: str = "") -> None:
    """Check that whole numbers of a recipe aren't below ``least``.

    Args:
        within: Prefix of the field in messages, e.g. ``world.``.

    Raises:
        ValueError: One is.
    """
    for name in names:
        if getattr(recipe, name) < least:
            raise ValueError(f"{within}{name} must be at least {least}, got {getattr(recipe, name)}")


def check_shares(recipe: Any, *names: str, within: str = "") -> None:
    """Check that numbers of a recipe are from 0 to 1, else raise ValueError."""
    for name in names:
        if not 0 <= getattr(recipe, name) <= 1:
            raise ValueError(f"{within}{name} must be a share from 0 to 1, got {getattr(recipe, name)}")


def check_rate(recipe: Any) -> None:
    """Check a recipe's learning rate, else raise ValueError."""
    if not 0 < recipe.learning_rate < math.inf:
        raise ValueError(f"learning_rate must be above 0, got {recipe.learning_rate}")


def check_world(world: WorldRecipe) -> None:
    """Check the numbers of a world, else raise ValueError."""
    check_counts(world, "fps", "overview_frames", within="world.")
    check_shares(world, "open_ended", within="world.")
    if any(count < 1 for count in world.other_overviews):
        raise ValueError(f"world.other_overviews must each be at least 1, got {world.other_overviews}")
    if any(not share >= 0 for _, share in world.mixture):
        raise ValueError(f"world.mixture must have no negative share, got {world.mixture}")
