"""Shared behaviour of commands: the environment of models' processes, one line for a mistake, exit statuses."""

import errno
import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentic_video.types.text import printable
from agentic_video.utils.errors import INTERRUPTED, SetupError, one_line
from agentic_video.utils.surroundings import prepare

if TYPE_CHECKING:
    from agentic_video.synthesis.jobs import JobReport

REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose a file or a folder that is yours to read and write",
    errno.EPERM: "choose a file or a folder that is yours to read and write",
}
"""Remedies for errors of the file system."""


def set_environment() -> None:
    """Set the environment variables of models' processes, where they aren't set; before anything heavy is imported."""
    from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV
    from agentic_video.utils.host import count_gpus

    for name, value in {**COMMON_ENV, **({} if count_gpus() else LAPTOP_ENV)}.items():
        os.environ.setdefault(name, value)


def guarded(work: Callable[[], int], *, models: bool = True) -> int:
    """Run a command that can be resumed, as :func:`plainly` does; its models' processes get their environment."""
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
        return plainly(work, "; the same command resumes from here")
    except InterpolationResolutionError as error:
        return refused(f"{error}; set that variable, or the key itself: {error.full_key}=...")
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # a RowError is a ValueError
        return refused(str(error))


def run_job(job: "Callable[[], JobReport]") -> int:
    """Run a job and report its end; exit status 1 when something is missing, 2 when nothing could start."""

    def work() -> int:
        finished = job()
        print(finished.text)
        if finished.warning:
            print(finished.warning, file=sys.stderr)
        return int(not finished.complete)

    return guarded(work)


def plainly(work: Callable[[], int], resuming: str = "") -> int:
    """Run a command; a mistake, an error of the file system (status 2) and an interruption (130) cost one line."""
    try:
        status = work()
        sys.stdout.flush()
        return status
    except SetupError as error:
        return refused(str(error))
    except BrokenPipeError:
        # The reader of the output has gone (``| head``): the flush at exit must not fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno is None or error.strerror is None:
            raise
        return refused(file_problem(error))
    except KeyboardInterrupt:
        print(f"\nstopped{resuming}", file=sys.stderr)
        return INTERRUPTED


def refused(message: str) -> int:
    """Print in one line why a command couldn't start or continue; returns its exit status."""
    print(f"error: {printable(one_line(message))}", file=sys.stderr)
    return 2


def file_problem(error: OSError) -> str:
    """Return the file, the fault and the remedy of an error of the file system."""
    where = f"{error.filename}: " if error.filename is not None else ""
    remedy = REMEDIES.get(error.errno or 0)
    return f"{where}{error.strerror}" + (f"; {remedy}" if remedy else "")
