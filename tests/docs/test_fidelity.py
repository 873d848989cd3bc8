"""docs/fidelity.md: every constant is named there with the value that the dataclasses and the composed configs have."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from tests.config.configs import SYSTEMS, composed, set_environment
from tests.docs.tables import (
    NOT_IN_YAML,
    REPOSITORY,
    ROOTS,
    STAGES,
    TITLES,
    cluster,
    has_key,
    rows_of,
    section_of,
)

FIDELITY = REPOSITORY / "docs" / "fidelity.md"
SHORT = ("system", "judge", "verifier", "retrieval")
"""Blocks under ``agentic_video`` that the page names without it."""
ENVIRONMENT = ("NNODES", "GPUS_PER_NODE", "TRAIN_FILES", "MODEL_PATH")
WITHOUT_FIGURE = {
    # the page says it in words or by a formula
    "agentic_video.system.max_resize",
    "actor_rollout_ref.rollout.val_kwargs.n",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)


@dataclass(frozen=True)
class Named:
    """A key in a row of the fidelity page, spelt out, and the default that the page gives with it, if it does."""

    row: str
    value: str
    key: str
    default: str | None
    profile: str = "cluster"


def named_keys(name: str) -> Iterator[Named]:
    """The keys that the section of a system names."""
    for row in rows_of(section_of(FIDELITY.read_text(encoding="utf-8"), f"## {TITLES[name]}")):
        if len(row) == 4:  # not the tables of disagreements
            yield from keys_of(row)


def keys_of(row: list[str]) -> Iterator[Named]:
    """The keys that a row of four cells names."""
    what, value, cell, _ = row
    last, profile = "", "cluster"
    # What stands in brackets are other values of the key before it.
    for token in re.findall(r"`([^`]+)`", re.sub(r"\([^()]*\)", "", cell)):
        key, _, default = (part.strip() for part in token.partition(": "))
        if key in STAGES:
            profile = key.removesuffix(".yaml")
        if key in ENVIRONMENT or key.endswith(".yaml"):
            continue
        if key.startswith("."):
            key = last.rpartition(".")[0] + key
        elif key.split(".")[0] in SHORT:
            key = f"agentic_video.{key}"
        assert profile != "cluster" or key.split(".")[0] in ROOTS, f"{what}: {token}"
        last = key
        yield Named(what, value, key, default or None, profile)


@pytest.mark.parametrize("name", SYSTEMS)
def test_fidelity_names_keys_that_exist_with_their_defaults(name: str) -> None:
    named = list(named_keys(name))
    assert len(named) > 40
    for one in named:
        config = cluster(name, one.profile)
        key = one.key.removesuffix(".*")
        assert key in NOT_IN_YAML or has_key(config, key), f"{one.row}: {one.key}"
        if one.default is not None:
            assert str(OmegaConf.select(config, key)) == one.default, f"{one.row}: {one.key}"


@pytest.mark.parametrize("name", SYSTEMS)
def test_fidelity_s_defaults_are_those_of_the_dataclasses(name: str) -> None:
    """The tables against the code itself, whatever a yaml says."""
    system = SYSTEMS[name]()
    checked = 0
    for one in named_keys(name):
        if not one.key.startswith("agentic_video.system.") or one.default is None:
            continue
        value: Any = system
        for part in one.key.split(".")[2:]:
            value = getattr(value, part)
        assert str(value) == one.default, f"{one.row}: {one.key}"
        checked += 1
    assert checked > 1


def spellings(value: Any) -> list[str]:
    """How the page may write a number."""
    if value == 0:
        return ["none", "0", "greedy"]
    written = [f"{value:g}", str(value), f"{value:,.10g}"]
    if value < 0.05:
        written.append(f"{value:.0e}".replace("e-0", "e-"))
    return ["none", *written] if value == -1 else written


@pytest.mark.parametrize("name", SYSTEMS)
def test_fidelity_gives_the_config_s_figures(name: str) -> None:
    for one in named_keys(name):
        value = OmegaConf.select(cluster(name, one.profile), one.key)
        if isinstance(value, DictConfig) and "frames" in value:  # FrameMind's ends of the ladder
            assert one.value == f"{value.frames} frames of {value.height}x{value.width}"
        if one.default is None and isinstance(value, bool):
            raise AssertionError(f"{one.row}: {one.key} is a switch, whose state the key's cell must give")
        if isinstance(value, bool) or not isinstance(value, int | float) or one.key in WITHOUT_FIGURE:
            continue
        if one.default is not None or one.row == "small-scale experiment":
            continue
        # Not inside another number: 8 isn't in 128, 16 isn't in 1.6.
        found = any(re.search(rf"(?<![\d.,]){re.escape(text)}(?![\d]|[.,]\d)", one.value) for text in spellings(value))
        assert found, f"{one.row}: {one.value!r} doesn't say {value} ({one.key})"


def leaves(block: DictConfig, prefix: str) -> Iterator[str]:
    for key, value in block.items():
        if key == "_target_":
            continue
        if isinstance(value, DictConfig):
            yield from leaves(value, f"{prefix}.{key}")
        else:
            yield f"{prefix}.{key}"


def test_what_every_cluster_profile_has() -> None:
    """The table of the last section: given defaults hold everywhere, but where a system's own table says otherwise."""
    rows = rows_of(section_of(FIDELITY.read_text(encoding="utf-8"), "## Common to all"))
    shared = [one for row in rows for one in keys_of(row)]
    assert len(shared) >= 8
    for name in SYSTEMS:
        own = {one.key for one in named_keys(name)}
        for one in shared:
            assert has_key(cluster(name), one.key), one.key
            if one.default is not None and one.key not in own:
                assert str(OmegaConf.select(cluster(name), one.key)) == one.default, f"{name}: {one.key}"
    for key in ("temperature", "top_p"):
        key = f"actor_rollout_ref.rollout.{key}"
        others = [name for name in SYSTEMS if key not in {one.key for one in named_keys(name)}]
        assert all(OmegaConf.select(cluster(name), key) == 1.0 for name in others)


@pytest.mark.parametrize("name", SYSTEMS)
def test_fidelity_covers_every_constant_of_the_system(name: str) -> None:
    named = {one.key for one in named_keys(name) if one.profile == "cluster"}
    for key in leaves(cluster(name).agentic_video.system, "agentic_video.system"):
        # The two ends of FrameMind's ladder are named whole.
        assert key in named or key.rpartition(".")[0] in named, key


@pytest.mark.parametrize("name", SYSTEMS)
def test_fidelity_s_other_sides_are_values_that_the_config_takes(name: str) -> None:
    """The last column of the table of disagreements: overrides that compose, with the system they describe."""
    from agentic_video.config.settings import settings_of

    section = section_of(FIDELITY.read_text(encoding="utf-8"), f"## {TITLES[name]}")
    rows = rows_of(section_of(section, "### Where the sources disagree"))
    assert rows and all(len(row) == 5 for row in rows)
    for row in rows:
        if "run_sft.sh" in row[4]:  # of another stage
            continue
        overrides = [
            override for token in re.findall(r"`([^`]+)`", row[4]) for override in token.split() if "=" in override
        ]
        if overrides:
            changed = composed(name, "cluster", *overrides)
            system = settings_of(changed).system
            touches_system = any(override.startswith("agentic_video.system.") for override in overrides)
            assert (system != settings_of(cluster(name)).system) == touches_system, row[0]


def test_every_section_has_the_same_parts() -> None:
    text = FIDELITY.read_text(encoding="utf-8")
    common = [
        "What the agent sees",
        "What it may say and ask",
        "Reward",
        "How it is trained",
        "Other stages",
        "Where the sources disagree",
        "Notes",
    ]
    for title in TITLES.values():
        headings = re.findall(r"^### (.*)$", section_of(text, f"## {title}"), re.MULTILINE)
        assert [heading for heading in headings if heading in common] == common
