"""What the programs that build for a recipe have in common: their arguments, and the paths that they print."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from agentic_video.toyworld.cache import DEFAULT_CACHE


def recipe_parser(module: str, description: str | None, profile: str) -> argparse.ArgumentParser:
    """A parser of ``recipe``, ``overrides``, ``--profile`` and ``--cache``.

    Args:
        module: Dotted path of the program.
        description: What it does.
        profile: Name of the recipe's config where none is asked for.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("recipe", type=Path, help="folder of the recipe, with config/*.yaml")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides")
    parser.add_argument("--profile", default=profile, help="name of the recipe's config (%(default)s)")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of finished builds (%(default)s)")
    return parser


def print_paths(paths: Mapping[str, Path | None]) -> None:
    """Print what was built, one path a line after its name, as the launcher reads it; what is None is left out."""
    for name, path in paths.items():
        if path is not None:
            print(f"{name}: {path}")
