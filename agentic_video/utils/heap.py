"""The C library's heap."""

import ctypes
from functools import cache
from typing import Any

_SHARED_HEAPS = 2


@cache
def _of_libc(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):  # not glibc
        return None


def trim() -> None:
    """Give free pages of the heap back to the system; glibc keeps them otherwise, where pictures come and go."""
    if (malloc_trim := _of_libc("malloc_trim")) is not None:
        malloc_trim(0)


def share_arenas() -> None:
    """Let all threads of this process share two of glibc's heaps, instead of eight for each processor.

    What one heap has free, threads of another can't use: where threads come and go with pictures, each heap grows to
    the most that it ever held. For a process that is about to start such threads.
    """
    if (mallopt := _of_libc("mallopt")) is not None:
        mallopt(-8, _SHARED_HEAPS)  # M_ARENA_MAX, malloc.h
