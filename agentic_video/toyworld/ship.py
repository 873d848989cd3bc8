"""Builds the models that come with the package: ``python -m agentic_video.toyworld.ship recipes/<default job's>``.

Run it in a checkout where a test says that a shipped model is out of date. It takes a minute or two on two cores.
"""

import shutil

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import limits_of, settings_of
from agentic_video.toyworld.build.cache import SHIPPED, Cache
from agentic_video.toyworld.build.command_line import recipe_parser, run_builder
from agentic_video.toyworld.build.ensure import ensure
from agentic_video.toyworld.build.recipe import toy_recipe


def main() -> None:
    """Build a recipe's base model and cold start, and replace shipped ones that are out of date."""
    parser = recipe_parser("agentic_video.toyworld.ship", __doc__, "laptop")
    parser.add_argument("--afresh", action="store_true", help="replace models that are up to date too")
    arguments = parser.parse_args()
    config = compose_recipe(arguments.recipe, arguments.profile, arguments.overrides)
    with Cache(arguments.cache, arguments.dry_run, shipped=not arguments.afresh) as builds:
        paths = ensure(settings_of(config).system, limits_of(config), toy_recipe(config), builds)
    assert paths.base is not None and paths.model is not None
    shipped = [SHIPPED / model.name for model in (paths.base, paths.model)]
    if arguments.dry_run:
        return
    for model, folder in zip((paths.base, paths.model), shipped, strict=True):
        if model != folder:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(model, folder, copy_function=shutil.copyfile)  # weights are saved for their owner alone
        print(folder)
    for outdated in set(SHIPPED.iterdir()) - set(shipped):
        shutil.rmtree(outdated)


if __name__ == "__main__":
    run_builder(main)
