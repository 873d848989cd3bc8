"""glibc's heaps, asked for what they are."""

import subprocess
import sys

import pytest

HEAPS_OF_SIXTEEN_THREADS = """
import ctypes, sys, tempfile, threading
from agentic_video.utils.heap import share_arenas, trim
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
