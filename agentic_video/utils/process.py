"""This process: its end, its parent's end, its heap and its threads."""

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
from functools import cache
from typing import Any, NoReturn

from agentic_video.utils.host import cpu_limit

PR_SET_PDEATHSIG = 1
VARIABLE = "OMP_NUM_THREADS"
MAX_IMAGE_THREADS = 8
_SHARED_HEAPS = 2


def end_now() -> NoReturn:
    """End this process as Python does, with status 0, but leave its memory to the kernel.

    Giving each object back takes a second where torch and others were imported. Threads that aren't daemons are waited
    for, :mod:`atexit`'s functions run, output is flushed (status 120 where it can't be). Other files must be closed.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    status = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream and not stream.closed:  # it has none where the descriptor was closed
                stream.flush()
        except OSError as error:
            status = 120
            with contextlib.suppress(OSError):
                os.write(2, f"what was printed can't be written: {error}\n".encode())
    os._exit(status)


def signal_at_parent_end(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def end_with_parent() -> None:
    """End this process with its parent, however that ends; Ctrl-C, which reaches both, is left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal_at_parent_end(signal.SIGKILL)


@cache
def _libc(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):  # not glibc
        return None


def trim() -> None:
    """Give free pages of the heap back to the system; glibc keeps them otherwise, where pictures come and go."""
    if (malloc_trim := _libc("malloc_trim")) is not None:
        malloc_trim(0)


def share_arenas() -> None:
    """Let all threads of this process share two of glibc's heaps, instead of eight for each processor.

    Free pages of one heap can't serve threads of another: where threads come and go with pictures, each heap grows to
    its own maximum. For a process that is about to start such threads.
    """
    if (mallopt := _libc("mallopt")) is not None:
        mallopt(-8, _SHARED_HEAPS)  # M_ARENA_MAX, malloc.h


def image_threads(engines: int, cpus: int) -> int:
    """Threads for images of one of a node's engines: half of its share of the cores, which decoders need too."""
    return max(1, min(MAX_IMAGE_THREADS, cpus // (2 * max(1, engines))))


def take_image_threads(gpus_each: int) -> None:
    """Let this process of a Ray node use its share of threads: vLLM reads the variable whenever it processes images.

    Ray sets it to the number of an actor's CPUs, which is 1 for engines. A user's own value is left.

    Args:
        gpus_each: GPUs of this node that belong to an engine.
    """
    import ray

    if os.environ.get(VARIABLE, "1") != "1" or not ray.is_initialized():
        return
    here = ray.get_runtime_context().get_node_id()
    gpus = next((node["Resources"].get("GPU", 0) for node in ray.nodes() if node["NodeID"] == here), 0)
    if gpus:
        os.environ[VARIABLE] = str(image_threads(max(1, int(gpus) // max(1, gpus_each)), cpu_limit()))
