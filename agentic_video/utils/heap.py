"""The C library's heap."""

import ctypes
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def _malloc_trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # not glibc
        return None


def trim() -> None:
    """Give free pages of the heap back to the system; glibc keeps them otherwise, where pictures come and go."""
    if (malloc_trim := _malloc_trim()) is not None:
        malloc_trim(0)
