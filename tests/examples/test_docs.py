"""The documentation points at things that exist (links, config keys, files), and its figures are the configs'."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from brightness_tool import SharpZoomer
from omegaconf import DictConfig, ListConfig, OmegaConf

from agentic_video.toyworld.recipe import ToyRecipe
from tests.config.configs import RECIPES, SYSTEMS, composed, set_environment

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for pattern in ("README.md", "docs/*.md", "docker/README.md", "recipes/*/README.md", "examples/*/README.md")
    for page in REPOSITORY.glob(pattern)
)
FIDELITY = REPOSITORY / "docs" / "fidelity.md"
LISTING = re.compile(r"^`([\w./]+)`:\n\n```", re.MULTILINE)
ROOTS = ("data", "actor_rollout_ref", "algorithm", "trainer", "reward", "agentic_video")
SHORT = ("system", "judge", "verifier", "retrieval")
"""Blocks under ``agentic_video`` that the fidelity page names without it."""
STAGES = ("sft.yaml", "kto.yaml")
ENVIRONMENT = ("NNODES", "GPUS_PER_NODE", "TRAIN_FILES", "MODEL_PATH")
TITLES = {
    "videozoomer": "VideoZoomer",
    "framethinker": "FrameThinker",
    "framemind": "FrameMind",
    "videobrain": "VideoBrain",
    "eva": "EVA",
}
NOT_IN_YAML = {"agentic_video.system.stop", "agentic_video.system.name"}
WITHOUT_FIGURE = {
    # the page says it in words or by a formula
    "agentic_video.system.max_resize",
    "actor_rollout_ref.rollout.val_kwargs.n",
}


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)


@cache
def cluster(system: str, profile: str = "cluster") -> DictConfig:
    """A system's published run, or another stage of it; not to be changed."""
    return composed(system, profile)


def stages_of(name: str) -> list[str]:
    """The configs of a recipe's published stages."""
    found = [path.removesuffix(".yaml") for path in STAGES if (RECIPES / name / "config" / path).exists()]
    return ["cluster", *found]


def has_key(config: DictConfig, key: str) -> bool:
    """Whether a config has a key, whatever its value."""
    parent, _, leaf = key.rpartition(".")
    block = OmegaConf.select(config, parent)
    return isinstance(block, DictConfig) and leaf in block


def system_of(page: Path) -> str | None:
    """The system whose recipe a page belongs to."""
    return page.parent.name if page.parent.parent.name == "recipes" else None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_within_a_page_lead_to_headings(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= headings


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_of_the_repository_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths = re.findall(r"`((?:agentic_video|recipes|tests|docker|docs|examples)/[\w./]+\.\w+)`", text)
    paths += re.findall(r"bash ((?:recipes|examples)/[\w./]+\.sh)", text)
    listed = set(LISTING.findall(text))  # files that the page itself shows
    for path in paths:
        assert path in listed or (REPOSITORY / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_config_keys_exist(page: Path) -> None:
    """Every key in backticks or in a command, as far as it starts at one of the config's blocks. A recipe's page may
    name its own recipe's keys only."""
    text = page.read_text(encoding="utf-8")
    keys = set(re.findall(rf"(?<![\w./+])((?:{'|'.join(ROOTS)})\.[a-z][\w.]*[a-z_\d])(?==|`|:)", text))
    own = system_of(page)
    configs = [cluster(name, stage) for name in ([own] if own else SYSTEMS) for stage in stages_of(name)]
    of_examples = {f"agentic_video.system.{field.name}" for field in fields(SharpZoomer)}
    of_toyworld = {f"agentic_video.toyworld.{field.name}" for field in fields(ToyRecipe)}
    for key in keys - NOT_IN_YAML - of_toyworld - (set() if own else of_examples) - {"reward.png"}:
        if not any(has_key(config, key) for config in configs):
            assert key.startswith("agentic_video.") and is_code(key), f"{name_of(page)}: {key}"


def is_code(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    try:
        if find_spec(name):
            return True
    except ModuleNotFoundError:
        pass
    module, _, attribute = name.rpartition(".")
    try:
        return bool(find_spec(module)) and hasattr(__import__(module, fromlist=[attribute]), attribute)
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_keys_of_a_recipe_s_own_exist(name: str) -> None:
    text = (REPOSITORY / "recipes" / name / "README.md").read_text(encoding="utf-8")
    if name == "videozoomer":  # its page names full keys
        return
    section = section_of(text, "## Keys of its own")
    cells = [row[0] for row in rows_of(section)]
    assert len(cells) >= 5
    for key in (key for cell in cells for key in re.findall(r"`([a-z_.]+)", cell)):
        assert has_key(cluster(name), f"agentic_video.system.{key}"), key


def section_of(text: str, heading: str) -> str:
    """The text below a heading, up to the next one of its level."""
    level = heading.split()[0]
    start = text.index(f"\n{heading}\n") + len(heading) + 2
    end = re.search(rf"^{level} ", text[start:], re.MULTILINE)
    return text[start : start + end.start()] if end else text[start:]


def rows_of(text: str) -> list[list[str]]:
    """The cells of all tables' rows, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for number, line in enumerate(lines)
        if "---" not in line and not (number + 1 < len(lines) and "---" in lines[number + 1])
    ]


@dataclass(frozen=True)
class Named:
    """A key in a row of the fidelity page, spelt out, and the default that the page gives with it, if it does."""

    row: str
    value: str
    key: str
    default: str | None
    profile: str = "cluster"


def named_keys(name: str) -> Iterator[Named]:
    for row in rows_of(section_of(FIDELITY.read_text(encoding="utf-8"), f"## {TITLES[name]}")):
        if len(row) != 4:  # the tables of disagreements
            continue
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
            assert not isinstance(value, ListConfig)
            yield f"{prefix}.{key}"


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
        "What it is paid for",
        "How it is trained",
        "Other stages",
        "Where the sources disagree",
        "Notes",
    ]
    for title in TITLES.values():
        headings = re.findall(r"^### (.*)$", section_of(text, f"## {title}"), re.MULTILINE)
        assert [heading for heading in headings if heading in common] == common


def test_the_front_page_shows_every_system() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    for name, title in TITLES.items():
        assert title in text
        assert f"bash recipes/{name}/run_grpo.sh" in text
