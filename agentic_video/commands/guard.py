"""What commands have in common: the environment of models' processes, one line for a mistake, exit statuses."""

import argparse
import errno
import logging
import os
import sys
from collections.abc import Callable

from agentic_video.types.text import printable
from agentic_video.utils.errors import INTERRUPTED, SetupError, one_line
from agentic_video.utils.surroundings import prepare

REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose a file or a folder that is yours to read and write",
    errno.EPERM: "choose a file or a folder that is yours to read and write",
}
"""What to do about errors of the file system."""


def set_environment() -> None:
    """Set the environment variables of models' processes, where they aren't set; before anything heavy is imported."""
    from agentic_video.utils.devices import count_gpus
    from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV

    for name, value in {**COMMON_ENV, **({} if count_gpus() else LAPTOP_ENV)}.items():
        os.environ.setdefault(name, value)


def guarded(work: Callable[[argparse.Namespace], int], arguments: argparse.Namespace, *, models: bool = True) -> int:
    """Run a command that goes on where it was stopped.

    Args:
        work: The command; its exit status.
        arguments: Its arguments.
        models: Whether models run in this process.

    Returns:
        The command's exit status; 2 with a line when it couldn't start, 130 when it was interrupted.
    """
    try:
        prepare(os.environ)
    except SetupError as error:
        return refused(str(error))
    if models:
        set_environment()
    logging.getLogger("hydra").setLevel(logging.CRITICAL)  # it logs what it then raises
    from hydra.errors import HydraException
    from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

    try:
        return plainly(lambda: work(arguments), "; the same command goes on from here")
    except InterpolationResolutionError as error:
        return refused(f"{error}; set that variable, or the key itself: {error.full_key}=...")
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # a RowError is a ValueError
        return refused(str(error))


def plainly(work: Callable[[], int], going_on: str = "") -> int:
    """Run a command; what its user can mend, and an interruption, cost one line.

    Args:
        work: The command; its exit status.
        going_on: What is said after "stopped".

    Returns:
        The command's exit status; 2 with a line for a :class:`SetupError` or an error of the file system, 130 when it
        was interrupted.
    """
    try:
        status = work()
        sys.stdout.flush()
        return status
    except SetupError as error:
        return refused(str(error))
    except BrokenPipeError:
        # Who read the output has gone (``| head``): nobody is left to be told, at exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno is None or error.strerror is None:
            raise
        return refused(file_problem(error))
    except KeyboardInterrupt:
        print(f"\nstopped{going_on}", file=sys.stderr)
        return INTERRUPTED


def refused(message: str) -> int:
    """Say in one line why a command couldn't start or go on; its exit status."""
    print(f"error: {printable(one_line(message))}", file=sys.stderr)
    return 2


def file_problem(error: OSError) -> str:
    """What went wrong with which file, and what to do about it."""
    where = f"{error.filename}: " if error.filename is not None else ""
    remedy = REMEDIES.get(error.errno or 0)
    return f"{where}{error.strerror}" + (f"; {remedy}" if remedy else "")
