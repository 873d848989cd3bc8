"""recipes/setup.sh makes the environment once, and again when what it was made from has changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.config.configs import RECIPES


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose uv only notes that it ran; it fails while there is a file ``broken``."""
    (tmp_path / "recipes").mkdir()
    shutil.copy(RECIPES / "setup.sh", tmp_path / "recipes")
    for name in ("uv.lock", "pyproject.toml"):
        (tmp_path / name).write_text(name)
    uv = tmp_path / ".venv-tools" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text('#!/bin/sh\necho "$@" >>synced\nmkdir -p .venv\n[ ! -e broken ]\n')
    uv.chmod(0o755)
    return tmp_path


def set_up(repository: Path, **variables: str) -> tuple[int, str]:
    """Source the script; its status and PYTHON."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    script = 'set -e; source recipes/setup.sh >&2; echo "$PYTHON"'
    done = subprocess.run(
        ["bash", "-c", script], cwd=repository, env={**environment, **variables}, stdout=subprocess.PIPE, text=True
    )
    return done.returncode, done.stdout.strip()


def syncs(repository: Path) -> int:
    file = repository / "synced"
    return len(file.read_text().splitlines()) if file.is_file() else 0


def test_it_is_set_up_once(repository: Path) -> None:
    for _ in range(2):
        assert set_up(repository) == (0, str(repository / ".venv" / "bin" / "python"))
    assert syncs(repository) == 1


@pytest.mark.parametrize("name", ["uv.lock", "pyproject.toml"])
def test_a_change_of_packages_or_entry_points_sets_it_up_again(name: str, repository: Path) -> None:
    set_up(repository)
    (repository / name).write_text("changed")
    for _ in range(2):
        assert set_up(repository)[0] == 0
    assert syncs(repository) == 2


def test_what_failed_is_tried_again(repository: Path) -> None:
    set_up(repository)
    before = (repository / "uv.lock").read_text()
    (repository / "uv.lock").write_text("changed")
    (repository / "broken").touch()
    assert set_up(repository)[0] == 1
    (repository / "broken").unlink()
    # even back at the first lock: the environment is half changed
    (repository / "uv.lock").write_text(before)
    assert set_up(repository)[0] == 0
    assert syncs(repository) == 3


def test_an_environment_of_one_s_own_is_used_as_it_is(repository: Path) -> None:
    assert set_up(repository, PYTHON=sys.executable) == (0, sys.executable)
    assert syncs(repository) == 0


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false"])
def test_an_environment_without_the_packages_is_refused(python: str, repository: Path) -> None:
    status, _ = set_up(repository, PYTHON=python)
    assert status == 2 and syncs(repository) == 0
