from pathlib import Path

import pytest

from agentic_video.utils.devices import count_gpus


def listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program in the place of the driver's."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_gpus_are_counted_as_the_driver_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing(tmp_path, monkeypatch, "echo 'GPU 0: A (UUID: x)'; echo '  MIG 1g: y'; echo 'GPU 1: A (UUID: z)'")
    assert count_gpus() == 2


def test_a_driver_that_fails_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing(tmp_path, monkeypatch, "echo 'No devices were found'; exit 6")
    assert count_gpus() == 0


def test_without_a_driver_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert count_gpus() == 0


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        ("0,1,2,3", 4),
        ("2", 1),
        ("0,0", 1),
        ("3,7", 1),  # CUDA stops at the first that it doesn't have
        ("1,-1,2", 1),
        ("GPU-a,GPU-b", 2),
        ("MIG-a", 1),
        ("", 0),
        ("-1", 0),
        ("none", 0),
        ("NoDevFiles", 0),
    ],
)
def test_hidden_ones_do_not_count(visible: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing(tmp_path, monkeypatch, 'for i in 0 1 2 3; do echo "GPU $i: A (UUID: GPU-$i)"; done')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count_gpus() == count


@pytest.mark.parametrize("value", ["void", "none", ""])
def test_what_only_a_container_s_runtime_reads_hides_none(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a device plugin hands GPUs over, the variable is void and the GPUs are there."""
    listing(tmp_path, monkeypatch, "echo 'GPU 0: A (UUID: x)'")
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", value)
    assert count_gpus() == 1
