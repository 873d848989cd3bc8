"""The README's two commands on a fresh machine: a new clone, an empty home, nothing of this checkout's environment.

Both set up the environment by themselves, so the machine needs a network, and 7 GB of disk for each.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
KEPT = ("LANG", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")
"""Variables without which a machine may not reach the network."""
REGISTRY = ("PIP_", "UV_INDEX", "UV_DEFAULT_INDEX", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Starts of those that say where packages come from."""

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A clone of what is committed, and next to it an empty home."""
    folder = tmp_path_factory.mktemp("machine")
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(REPOSITORY), str(folder / "clone")], check=True)
    (folder / "home").mkdir()
    yield folder / "clone"
    shutil.rmtree(folder, ignore_errors=True)  # gigabytes


def run(clone: Path, *words: str) -> str:
    """What a command prints there, with the variables of somebody who has just logged in."""
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= {name: value for name, value in os.environ.items() if name.startswith(REGISTRY)}
    # the Python that this environment was made from, and none of its packages
    path = f"{Path(sys.base_prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", *words],
        cwd=clone,
        env={**environment, "HOME": str(clone.parent / "home"), "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def test_one_command_runs_the_main_job(clone: Path) -> None:
    said = run(clone, "recipes/videozoomer/run_grpo.sh")
    assert "environment ready after" in said and "step 20 of 20: " in said
    (folder,) = (clone / "outputs").glob("videozoomer-laptop/run-*")
    assert (folder / "summary.md").is_file() and (folder / "model" / "config.json").is_file()


def test_one_command_passes_the_tests(clone: Path) -> None:
    said = run(clone, "run_tests.sh")
    assert " passed" in said and " failed" not in said
