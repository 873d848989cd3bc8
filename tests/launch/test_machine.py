import os
import subprocess
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

import pytest

from agentic_video.launch import machine
from agentic_video.launch.machine import PeakMemory, clean_machine, remove_segments, require_engine, shared_segments
from agentic_video.utils.errors import SetupError


def test_only_segments_that_nobody_maps_are_removed() -> None:
    kept = shared_memory.SharedMemory(create=True, size=16)
    orphan = Path("/dev/shm/psm_agentic_video_test")
    orphan.write_bytes(b"x")
    try:
        assert {orphan, Path("/dev/shm") / kept.name} <= shared_segments()
        remove_segments({orphan, Path("/dev/shm") / kept.name})
        assert not orphan.exists()
        assert (Path("/dev/shm") / kept.name).exists()
    finally:
        kept.close()
        kept.unlink()
        orphan.unlink(missing_ok=True)


@pytest.mark.parametrize("name", ["psm_agentic_video_test2", "verl_weights_agentic_video_test"])
def test_machine_is_left_clean(name: str) -> None:
    with clean_machine() as folder:
        (folder / "x").write_text("x")
        orphan = Path("/dev/shm") / name
        orphan.write_bytes(b"x")
    assert not folder.exists()
    assert not orphan.exists()


def test_the_memory_of_descendants_is_counted() -> None:
    size = 64 << 20
    code = f"held = b'x' * {size}; print('up', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        # only now: a child that isn't its own program yet has all of this process's memory
        memory = PeakMemory(os.getpid(), interval=0.01)
        while memory.peak < size:
            time.sleep(0.01)
        child.communicate(b"\n")
    assert size < memory.stop() < 4 * size


def test_a_rollout_needs_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    require_engine("grpo", 0)  # it is here
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    require_engine("sft", 0)
    with pytest.raises(SetupError, match=r"agentic-video install cpu$"):
        require_engine("grpo", 0)
    with pytest.raises(SetupError, match=r"agentic-video install gpu$"):
        require_engine("grpo", 8)
