"""How a program ends that has nothing more to do."""

import atexit
import contextlib
import os
import sys
import threading
from typing import NoReturn


def end_now() -> NoReturn:
    """End this process as Python does, with status 0, but leave its memory to the kernel.

    Giving each object back takes a second where torch and others were imported. What is to be done at the end is done:
    threads that aren't daemons are waited for, :mod:`atexit`'s functions run, what was printed is written (status 120
    where it can't be). Other files must have been closed.
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
