"""How a program ends that has nothing more to do."""

import atexit
import contextlib
import os
import sys
import threading
from typing import NoReturn


def end_now() -> NoReturn:
    """End this process with status 0 as Python does, but leave its memory to the kernel.

    Giving each object back takes a second where torch and others were imported. What is to be done at the end is done:
    threads that aren't daemons are waited for, :mod:`atexit`'s functions run, what was printed is written.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)
