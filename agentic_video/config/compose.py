"""A recipe's config, composed on verl's own."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from agentic_video.utils.errors import SetupError


def check_overrides(overrides: Sequence[str]) -> None:
    """Make sure that words which are no options are Hydra overrides.

    Raises:
        SetupError: One isn't; the message names it.
    """
    bad = [text for text in overrides if "=" not in text and not text.startswith("~")]
    if bad:
        raise SetupError(f"not an option and not a Hydra override (key=value): {bad[0]}")


def compose_recipe(recipe: Path, profile: str, overrides: Sequence[str] = ()) -> DictConfig:
    """The whole config of a run, as verl gets it.

    Args:
        recipe: A folder with ``config/<profile>.yaml``.
        profile: ``laptop`` or ``cluster``.
        overrides: Hydra overrides.

    Raises:
        hydra.errors.HydraException: The config doesn't compose; the message names the file or the key.
    """
    spec = find_spec("verl")
    assert spec is not None and spec.submodule_search_locations, "verl isn't installed"
    stock = Path(spec.submodule_search_locations[0]) / "trainer" / "config"
    GlobalHydra.instance().clear()
    with initialize_config_dir(str((recipe / "config").resolve()), version_base=None):
        return compose(
            profile,
            overrides=[*overrides, f"hydra.searchpath=[pkg://agentic_video.config,'file://{stock}']"],
        )


def find_recipe(name: str) -> Path:
    """A recipe's folder by its system's name: below the working directory, or beside the package.

    Raises:
        SetupError: There is none.
    """
    roots = (Path.cwd() / "recipes", Path(__file__).resolve().parents[2] / "recipes")
    for root in roots:
        if (root / name / "config").is_dir():
            return root / name
    raise SetupError(f"--system {name}: no such folder in {roots[0]}; name the recipe's folder with --recipe")
