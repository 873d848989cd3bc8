"""The fidelity pages name every constant, with the default that the composed configs have."""

import pytest
from omegaconf import OmegaConf

from agentic_video.config.overrides import leaves
from agentic_video.config.settings import settings_of
from tests.config.configs import SYSTEMS, composed, set_environment
from tests.docs.fidelity import FOLDER, filled, keys_of, overrides_of, table_rows, value_of
from tests.docs.tables import cluster


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)


def key_cells(name: str) -> list[str]:
    return [cells[0] for _, cells in table_rows((FOLDER / f"{name}.md").read_text(encoding="utf-8"))]


def cluster_keys(name: str) -> set[str]:
    return {named.key for cell in key_cells(name) for named in keys_of(cell) if named.stage == "cluster"}


@pytest.mark.parametrize("name", [*SYSTEMS, "common"])
def test_defaults_are_the_configs(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert filled("videozoomer" if name == "common" else name, text) == text


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_constant_of_the_system_has_a_row(name: str) -> None:
    block = {key: value for key, value in cluster(name).agentic_video.system.items() if key != "_target_"}
    keys = {key for key, _ in leaves(block, "agentic_video.system") if not key.endswith("._target_")}
    assert keys <= cluster_keys(name)


def test_the_common_defaults_hold_where_a_recipe_s_page_has_no_row() -> None:
    for named in (named for cell in key_cells("common") for named in keys_of(cell)):
        for name in SYSTEMS:
            if named.key not in cluster_keys(name):
                assert value_of(name, named) == value_of("videozoomer", named), f"{name}: {named.key}"


@pytest.mark.parametrize("name", SYSTEMS)
def test_overrides_for_other_sources_compose_and_change_the_config(name: str) -> None:
    overrides = [found for cell in key_cells(name) for found in overrides_of(cell)]
    for override in overrides:
        changed = composed(name, "cluster", *override)
        for key in (part.partition("=")[0] for part in override):
            assert OmegaConf.select(changed, key) != OmegaConf.select(cluster(name), key), key
        settings_of(changed)
