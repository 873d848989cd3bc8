from pathlib import Path

import pytest

from agentic_video.utils.devices import count_gpus


def listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program in the place of the driver's."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_gpus_are_counted_as_the_driver_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing(tmp_path, monkeypatch, "echo 'GPU 0: A (UUID: x)'; echo '  MIG 1g: y'; echo 'GPU 1: A (UUID: z)'")
    assert count_gpus() == 2


def test_a_driver_that_fails_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing(tmp_path, monkeypatch, "echo 'No devices were found'; exit 6")
    assert count_gpus() == 0


def test_without_a_driver_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert count_gpus() == 0
