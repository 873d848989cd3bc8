"""Folders of any name, and what Hydra makes of overrides that name them."""

from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import strategies as st
from omegaconf import OmegaConf

FOLDERS = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]) | st.sampled_from(" ,=(#&~'{[!\"\\$}ü"),
    min_size=1,
    max_size=12,
).filter(lambda name: name not in (".", "..") and "${" not in name)
"""Names of folders, but for those that a resolved config can't hold."""


def values_of(overrides: Sequence[str]) -> list[Any]:
    """What a config holds after each of some overrides."""
    config = OmegaConf.create({})
    keys = []
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        keys.append(override.key_or_group)
        OmegaConf.update(config, keys[-1], override.value(), force_add=True)
    OmegaConf.resolve(config)
    return [
        OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        for value in (OmegaConf.select(config, key) for key in keys)
    ]
