"""benchmarks/gpu/wheels.py: what is downloaded, cut, put together and installed."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from agentic_video.utils.errors import SetupError
from benchmarks.gpu import wheels

MEGA = 1_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four files in the place of wheels: 5, 1, 0.5 and 2.5 MB."""
    made = tmp_path / "wheels"
    made.mkdir()
    for name, size in {"big-1": 5, "small-1": 1, "tiny-1": 0.5, "wide-1": 2.5}.items():
        content = np.random.default_rng(int(10 * size)).bytes(int(size * MEGA))
        (made / f"{name}-py3-none-any.whl").write_bytes(content)
    return made


def test_pins_are_those_of_the_package_s_own_list(tmp_path: Path) -> None:
    listed = wheels.pins("gpu", "3.11.7", [], None)
    assert "torch==2.11.0" in listed and "vllm==0.24.0" in listed
    assert not any(pin.startswith("flash-attn") for pin in listed)
    # a pin for each Python
    assert sum(pin.startswith("contourpy==") for pin in listed) == 1
    assert wheels.pins("gpu", "3.12.0", [], None) != listed
    have = tmp_path / "have.txt"
    have.write_text("torch==2.11.0+cu130\nTokenizers==0.0.1\n")
    fewer = wheels.pins("gpu", "3.11.7", ["vLLM"], have)
    assert set(listed) - set(fewer) == {"torch==2.11.0", "vllm==0.24.0"}
    with pytest.raises(SetupError, match=r"--leave-out vlm: requirements-gpu\.txt has no such package"):
        wheels.pins("gpu", "3.11.7", ["vlm"], None)
    with pytest.raises(SetupError, match="pip freeze"):
        wheels.pins("gpu", "3.11.7", [], tmp_path / "none.txt")


def test_folders_stay_below_their_limit_and_make_the_same_wheels(folder: Path, tmp_path: Path) -> None:
    batches, whole = tmp_path / "batches", tmp_path / "whole"
    count = wheels.split(folder, batches, 2.5)
    assert count == len(list(batches.iterdir())) == 5  # 9 MB in four, and what the lists take
    for one in batches.iterdir():
        assert sum(part.stat().st_size for part in one.iterdir()) <= 2.5 * MEGA
    assert wheels.join(batches, whole) == []
    for file in folder.iterdir():
        assert (whole / file.name).read_bytes() == file.read_bytes()


def test_folders_may_arrive_yield_fairly(folder: Path, tmp_path: Path) -> None:
    batches, arrived, whole = tmp_path / "batches", tmp_path / "arrived", tmp_path / "whole"
    wheels.split(folder, batches, 2.5)
    left = []
    for one in sorted(batches.iterdir()):
        shutil.copytree(one, arrived / one.name)
        left.append(len(wheels.join(arrived, whole)))
        shutil.rmtree(arrived / one.name) if not left[-1] else None
    assert left[0] == 4 and left[-1] == 0 and left == sorted(left, reverse=True)
    assert wheels.main(["join", str(batches), str(whole)]) == 0


def test_a_damaged_wheel_is_refused(folder: Path, tmp_path: Path) -> None:
    batches = tmp_path / "batches"
    wheels.split(folder, batches, 2.5)
    part = next(iter(batches.rglob("big-1*.at-*")))
    part.write_bytes(b"x" + part.read_bytes()[1:])
    with pytest.raises(SetupError, match=r"big-1-py3-none-any\.whl: damaged"):
        wheels.join(batches, tmp_path / "whole")
    assert not (tmp_path / "whole" / "big-1-py3-none-any.whl").exists()


def test_what_can_t_be_done_is_said(folder: Path, tmp_path: Path) -> None:
    for call, message in (
        (lambda: wheels.split(tmp_path / "none", tmp_path / "b", 60), "no wheels there"),
        (lambda: wheels.split(folder, folder, 60), "not empty"),
        (lambda: wheels.split(folder, tmp_path / "b", 0.5), "too small"),
        (lambda: wheels.join(tmp_path, tmp_path / "w"), "no wheels.json"),
        (lambda: wheels.install_commands(folder, True), "no flash-attn there"),
    ):
        with pytest.raises(SetupError, match=message):
            call()


def test_a_folder_is_installed_without_an_index(tmp_path: Path) -> None:
    """A real wheel, by a real pip, into a folder of its own."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    name = "madeup_1-1.0"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("madeup_1.py", "VALUE = 3\n")
        wheel.writestr(f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\nName: madeup-1\nVersion: 1.0\n")
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    (command,) = wheels.install_commands(folder, False)
    assert command[3:6] == ["install", "--no-index", "--no-deps"]
    if subprocess.run([*command[:3], "--version"], capture_output=True, check=False).returncode:
        pytest.skip("this environment has no pip")
    subprocess.run([*command, "--target", str(tmp_path / "site")], check=True, capture_output=True)
    code = "import madeup_1; print(madeup_1.VALUE)"
    said = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path / "site")}, capture_output=True, check=True
    )
    assert said.stdout.strip() == b"3"
