import os
import subprocess
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

from agentic_video.launch.machine import PeakMemory, clean_machine, remove_segments, shared_segments


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


def test_machine_is_left_clean() -> None:
    with clean_machine() as folder:
        (folder / "x").write_text("x")
        orphan = Path("/dev/shm/psm_agentic_video_test2")
        orphan.write_bytes(b"x")
    assert not folder.exists()
    assert not orphan.exists()


def test_the_memory_of_descendants_is_counted() -> None:
    size = 64 << 20
    code = f"held = b'x' * {size}; print('up', flush=True); input()"
    memory = PeakMemory(os.getpid(), interval=0.01)
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        while memory.peak < size:
            time.sleep(0.01)
        child.communicate(b"\n")
    assert size < memory.stop() < 4 * size
