import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agentic_video.utils import cuda
from tests.utils.machines import Machine

REPOSITORY = Path(__file__).resolve().parents[2]


def test_cuda_is_that_of_the_locked_torch() -> None:
    lock = tomllib.loads((REPOSITORY / "uv.lock").read_text(encoding="utf-8"))
    (version,) = {entry["version"] for entry in lock["package"] if entry["name"] == "cuda-toolkit"}
    assert version.startswith(f"{cuda.CUDA}.")


@pytest.mark.parametrize(
    ("driver", "shown", "problem"),
    [("580.65.06", "", False), ("590.1.1", "", False), ("575.57.08", "12.9", True), ("575.57.08", "13.0", False)],
)
def test_what_a_driver_runs(
    driver: str, shown: str, problem: bool, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", machine.path(driver=driver, cuda=shown))
    assert cuda.driver_version() == driver
    assert (driver in cuda.driver_problem()) == problem


def test_no_driver_is_no_problem_of_the_driver(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.command("nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")
    monkeypatch.setenv("PATH", machine.path())
    assert (cuda.driver_version(), cuda.driver_cuda(), cuda.driver_problem()) == ("", 0, "")


def test_the_compiler_is_the_one_that_torch_takes(machine: Machine, tmp_path: Path) -> None:
    path = machine.path(nvcc="13.0")
    assert cuda.nvcc({"PATH": path}) == (str(machine.folder / "nvcc"), "13.0")
    home = Machine(tmp_path / "cuda" / "bin")
    home.folder.mkdir(parents=True)
    home.path(nvcc="12.8")
    assert cuda.nvcc({"PATH": path, "CUDA_HOME": str(tmp_path / "cuda")}) == (str(home.folder / "nvcc"), "12.8")
    assert cuda.nvcc({"PATH": path, "CUDA_HOME": str(tmp_path)}) == ("", "")


def test_it_runs_by_itself_and_says_all_that_is_wrong(machine: Machine) -> None:
    environment = {"PATH": machine.path(driver="550.54.15", nvcc="12.4")}
    done = subprocess.run(
        [sys.executable, "-I", "-S", cuda.__file__], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and done.stdout == ""
    first, second = done.stderr.splitlines()
    assert "550.54.15" in first and "is of CUDA 12.4" in second
