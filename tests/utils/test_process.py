import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentic_video.utils.process import VARIABLE, image_threads, take_image_threads

END = """
import atexit, threading, time
from agentic_video.utils.process import end_now

class Kept:
    def __del__(self):
        print("given back")

kept = Kept()
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
print("main")
end_now()
print("never")
"""


@pytest.mark.parametrize(
    ("shell", "status", "output", "errors"),
    [
        ('"$@"', 0, "main\nthread\nat exit\n", ""),
        ('"$@" >&-', 0, "", ""),
        pytest.param(
            *('"$@" >/dev/full', 120, "", "No space left on device"),
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full"),
        ),
    ],
)
def test_end_now_loses_nothing(shell: str, status: int, output: str, errors: str) -> None:
    command = ["bash", "-c", shell, "bash", sys.executable, "-c", END]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=buffered)
    assert (done.returncode, done.stdout) == (status, output)
    assert errors in done.stderr and bool(errors) == bool(done.stderr)


HEAPS_OF_SIXTEEN_THREADS = """
import ctypes, sys, tempfile, threading
from agentic_video.utils.process import share_arenas, trim
if sys.argv[1:]:
    share_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.fopen.restype = ctypes.c_void_p
libc.fopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
libc.malloc_info.argtypes, libc.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
together = threading.Barrier(16)
def some():
    together.wait()
    libc.malloc(5000)
    together.wait()
threads = [threading.Thread(target=some) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
trim()
with tempfile.NamedTemporaryFile() as file:
    out = libc.fopen(file.name.encode(), b"w")
    libc.malloc_info(0, out)
    libc.fclose(out)
    print(open(file.name).read().count("<heap nr"))
"""


def heaps(*words: str) -> int:
    command = [sys.executable, "-c", HEAPS_OF_SIXTEEN_THREADS, *words]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_threads_share_heaps() -> None:
    assert heaps("shared") <= 2 < heaps()


@pytest.mark.parametrize(
    ("engines", "cpus", "threads"), [(8, 128, 8), (8, 64, 4), (1, 16, 8), (1, 8, 4), (8, 8, 1), (0, 4, 2), (1, 1, 1)]
)
def test_image_threads(engines: int, cpus: int, threads: int) -> None:
    assert image_threads(engines, cpus) == threads


@pytest.mark.parametrize(
    ("gpus", "each", "before", "after"),
    [
        (8, 1, "1", "4"),  # 8 engines on 64 cores
        (8, 4, "1", "8"),  # 2 of them
        (8, 16, "1", "8"),  # one on two nodes
        (0, 1, "1", "1"),
        (8, 1, "3", "3"),
    ],
)
def test_take_image_threads(monkeypatch: pytest.MonkeyPatch, gpus: int, each: int, before: str, after: str) -> None:
    nodes: list[dict[str, Any]] = [
        {"NodeID": "other", "Resources": {"GPU": 2.0}},
        {"NodeID": "here", "Resources": {"CPU": 64.0} | ({"GPU": float(gpus)} if gpus else {})},
    ]
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "here"))
    monkeypatch.setattr("agentic_video.utils.process.cpu_limit", lambda: 64)
    monkeypatch.setenv(VARIABLE, before)
    take_image_threads(each)
    assert os.environ[VARIABLE] == after
