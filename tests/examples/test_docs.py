"""The documentation points at things that exist: links, config keys, files."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from brightness_tool import SharpZoomer
from omegaconf import DictConfig, OmegaConf

from tests.recipes.test_videozoomer_config import composed

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for pattern in ("docs/*.md", "docker/README.md", "recipes/*/README.md", "examples/*/README.md")
    for page in REPOSITORY.glob(pattern)
)
ROOTS = ("data", "actor_rollout_ref", "algorithm", "trainer", "reward", "agentic_video")
SHORT = {"system.": "agentic_video.system.", "judge.": "agentic_video.judge."}


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> DictConfig:
    return composed("cluster", monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_of_the_repository_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:agentic_video|recipes|tests|docker|examples)/[\w./]+\.\w+)`", text):
        assert (REPOSITORY / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_config_keys_exist(page: Path, cluster: DictConfig) -> None:
    """Every key in backticks or in a command, as far as it starts at one of the config's blocks."""
    text = page.read_text(encoding="utf-8")
    keys = set(re.findall(rf"(?<![\w./+])((?:{'|'.join(ROOTS)})\.[a-z][\w.]*[a-z_\d])(?==|`|:)", text))
    if page.name == "fidelity.md":
        for short, full in SHORT.items():
            keys |= {full + key for key in re.findall(rf"`{re.escape(short)}([a-z_.]+[a-z_])(?=`|:)", text)}
    keys -= {"agentic_video.launch", "reward.png"}  # a module, a file
    example = {field.name for field in fields(SharpZoomer)}  # VideoZoomer's fields are among them
    for key in keys:
        parent, _, leaf = key.rpartition(".")
        if parent == "agentic_video.system" and leaf in example:
            continue
        block = OmegaConf.select(cluster, parent)
        assert block is not None and leaf in block, f"{name_of(page)}: {key}"


def test_fidelity_covers_every_constant_of_the_system(cluster: DictConfig) -> None:
    text = (REPOSITORY / "docs" / "fidelity.md").read_text(encoding="utf-8")
    for key in cluster.agentic_video.system:
        if key not in ("_target_", "weights"):
            assert f"`system.{key}" in text, key
