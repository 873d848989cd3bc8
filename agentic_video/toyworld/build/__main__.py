"""Builds a recipe's synthetic world and tiny models: ``python -m agentic_video.toyworld.build``."""

from typing import get_args

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import limits_of, settings_of
from agentic_video.toyworld.build.cache import Cache
from agentic_video.toyworld.build.command_line import print_paths, recipe_parser, run_builder
from agentic_video.toyworld.build.ensure import Model, ensure
from agentic_video.toyworld.build.recipe import toy_recipe
from agentic_video.toyworld.questions import World


def main() -> None:
    """Run the build from the command line."""
    parser = recipe_parser("agentic_video.toyworld.build", __doc__, "laptop")
    parser.add_argument("--no-data", action="store_true", help="other rows are used; make what they need")
    parser.add_argument(
        "--model", choices=get_args(Model), default="cold-start", help="which model to make (%(default)s)"
    )
    arguments = parser.parse_args()
    config = compose_recipe(arguments.recipe, arguments.profile, arguments.overrides)
    recipe, system, limits = toy_recipe(config), settings_of(config).system, limits_of(config)
    with Cache(arguments.cache, arguments.dry_run, recipe.shipped) as cache:
        paths = ensure(system, limits, recipe, cache, data=not arguments.no_data, model=arguments.model)
    world = World.of(paths.world) if paths.world and not arguments.no_data else None
    print_paths(
        {
            "train": world.train if world else None,
            "heldout": world.heldout if world else None,
            "base": paths.base,
            "model": paths.model,
            "clip": paths.clip,
            "verifier": paths.base if recipe.verifier else None,
        }
    )


if __name__ == "__main__":
    run_builder(main)
