"""Builds the models that come with the package, those of the default job: ``python -m agentic_video.toyworld.ship``.

Run it in a checkout where a test says that a shipped model is out of date. It takes a minute or two on two cores.
"""

import argparse
import shutil
from pathlib import Path

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import limits_of, settings_of
from agentic_video.toyworld.build import ensure
from agentic_video.toyworld.cache import SHIPPED, Cache
from agentic_video.toyworld.command_line import run_builder
from agentic_video.toyworld.recipe import toy_recipe
from agentic_video.utils.environment import DEFAULT_CACHE

RECIPE = Path(__file__).parents[2] / "recipes" / "videozoomer"
"""The recipe of the default job."""


def ship(cache: Path, *, afresh: bool = False) -> list[Path]:
    """Build the default job's base model and cold start, and replace shipped ones that are out of date.

    Args:
        cache: Folder of finished builds.
        afresh: Replace those that are up to date too.

    Returns:
        Folders of the shipped models.
    """
    config = compose_recipe(RECIPE, "laptop", [])
    with Cache(cache, shipped=not afresh) as builds:
        paths = ensure(settings_of(config).system, limits_of(config), toy_recipe(config), builds)
    assert paths.base is not None and paths.model is not None
    shipped = [SHIPPED / model.name for model in (paths.base, paths.model)]
    for model, folder in zip((paths.base, paths.model), shipped, strict=True):
        if model != folder:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(model, folder, copy_function=shutil.copyfile)  # weights are saved for their owner alone
    for outdated in set(SHIPPED.iterdir()) - set(shipped):
        shutil.rmtree(outdated)
    return shipped


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m agentic_video.toyworld.ship", description=__doc__)
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of finished builds (%(default)s)")
    parser.add_argument("--afresh", action="store_true", help="replace models that are up to date too")
    arguments = parser.parse_args()
    for folder in ship(arguments.cache, afresh=arguments.afresh):
        print(folder)


if __name__ == "__main__":
    run_builder(main)
