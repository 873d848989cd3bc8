"""A recipe's config, composed on verl's own."""

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig

from agentic_video.config.overrides import check_against, one_line, parse_overrides
from agentic_video.utils.errors import SetupError

PACKAGED = Path(__file__).resolve().parents[1] / "recipes"
"""Where a wheel carries the recipes' configs. In a checkout they are beside the package."""


def compose_recipe(recipe: Path, profile: str, overrides: Sequence[str] = ()) -> DictConfig:
    """The whole config of a run, as verl gets it.

    Args:
        recipe: A folder with ``config/<profile>.yaml``.
        profile: ``laptop`` or ``cluster``; of other stages than GRPO e.g. ``sft`` or ``sft_laptop``.
        overrides: Hydra overrides.

    Raises:
        SetupError: An override is wrong, or the config doesn't compose; one line that names the key or the file.
    """
    parsed = parse_overrides(overrides)
    if parsed:
        check_against(_compose(recipe, profile), parsed)
    return _compose(recipe, profile, overrides)


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
    near = get_close_matches(name, known, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    raise SetupError(f"{option}{name}: no such recipe; {meant}there are {', '.join(known)}, and folders of your own")


def recipe_at(text: str) -> Path:
    """A recipe's folder, by its path or by its name.

    Raises:
        SetupError: There is none.
    """
    folder = Path(text)
    if (folder / "config").is_dir():
        return folder.resolve()
    if "/" in text:
        raise SetupError(f"{text}: no recipe (a folder with config/laptop.yaml or config/cluster.yaml)")
    return find_recipe(text, "")
