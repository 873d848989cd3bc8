"""A recipe's config, composed on verl's own."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig

from agentic_video.config.overrides import check_against, parse_overrides
from agentic_video.utils.choices import did_you_mean
from agentic_video.utils.errors import SetupError, one_line

PACKAGED = Path(__file__).resolve().parents[1] / "recipes"
"""Where a wheel carries the recipes' configs. In a checkout they are beside the package."""


CHOICE = "+profile="
"""Start of the override that adds the changes of a recipe's ``config/profile/<name>.yaml``."""


def compose_recipe(recipe: Path, profile: str, overrides: Sequence[str] = ()) -> DictConfig:
    """The whole config of a run, as verl gets it.

    Args:
        recipe: A folder with ``config/<profile>.yaml``.
        profile: ``laptop`` or ``cluster``; of other stages than GRPO e.g. ``sft`` or ``sft_laptop``.
        overrides: Hydra overrides.

    Raises:
        SetupError: An override is wrong, or the config doesn't compose; one line that names the key or the file.
    """
    chosen = [text for text in overrides if text.startswith(CHOICE)]
    for text in chosen:
        _check_choice(recipe, text.removeprefix(CHOICE))
    others = parse_overrides([text for text in overrides if text not in chosen])
    if others:
        check_against(_compose(recipe, profile, chosen), others)
    return _compose(recipe, profile, overrides)


def _check_choice(recipe: Path, name: str) -> None:
    """Make sure that a recipe has some changes of its config.

    Raises:
        SetupError: It hasn't; the message names those that it has.
    """
    known = sorted(file.stem for file in (recipe / "config" / "profile").glob("*.yaml"))
    if name not in known:
        has = f"; there are {', '.join(known)}" if known else ""
        raise SetupError(f"{recipe}: no config/profile/{name}.yaml{has}")


def _compose(recipe: Path, profile: str, overrides: Sequence[str] = ()) -> DictConfig:
    spec = find_spec("verl")
    assert spec is not None and spec.submodule_search_locations, "verl isn't installed"
    stock = Path(spec.submodule_search_locations[0]) / "trainer" / "config"
    if not (recipe / "config" / f"{profile}.yaml").is_file():
        raise SetupError(f"{recipe}: no recipe with config/{profile}.yaml")
    GlobalHydra.instance().clear()
    with initialize_config_dir(str((recipe / "config").resolve()), version_base=None):
        try:
            return compose(
                profile,
                overrides=[*overrides, f"hydra.searchpath=[pkg://agentic_video.config,'file://{stock}']"],
            )
        except HydraException as error:
            where = "" if overrides else f"{recipe / 'config' / profile}.yaml: "
            raise SetupError(where + one_line(error)) from error


def find_recipe(name: str, option: str = "--system ") -> Path:
    """A recipe's folder by its system's name: below the working directory, beside the package, or in it.

    Args:
        option: How messages introduce the name.

    Raises:
        SetupError: There is none.
    """
    roots = (Path.cwd() / "recipes", PACKAGED.parents[1] / "recipes", PACKAGED)
    for root in roots:
        if (root / name / "config").is_dir():
            return root / name
    known = sorted({folder.parent.name for root in roots for folder in root.glob("*/config")})
    meant = did_you_mean(name, known)
    raise SetupError(f"{option}{name}: no such recipe; {meant}there are {', '.join(known)}, and folders of your own")


def recipe_at(text: str) -> Path:
    """A recipe's folder, by its path or by its name.

    Raises:
        SetupError: There is none.
    """
    if "/" in text or (Path(text) / "config").is_dir():
        check_recipe(text)
        return Path(text).resolve()
    return find_recipe(text, "")


def check_recipe(recipe: str | Path) -> None:
    """Make sure that a folder is a recipe.

    Raises:
        SetupError: It isn't.
    """
    if not (Path(recipe) / "config").is_dir():
        raise SetupError(f"{recipe}: no recipe (a folder with config/laptop.yaml or config/cluster.yaml)")
