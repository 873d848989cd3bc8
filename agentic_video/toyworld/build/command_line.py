"""Shared command-line parts of the builders: options, printed paths, endings."""

import argparse
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import NoReturn

import psutil

from agentic_video.toyworld.build.gate import GateError
from agentic_video.utils.environment import DEFAULT_CACHE
from agentic_video.utils.errors import PluginTypeError, SetupError, one_line
from agentic_video.utils.process import end_now

NO_LEAK = "ignore:resource_tracker:UserWarning"
"""Warning filter of the process that tracks a pool's semaphores."""

EXPECTED = (SetupError, GateError, PluginTypeError, ValueError, OSError)
"""Errors that end a build with one line."""


def recipe_parser(module: str, description: str | None, profile: str) -> argparse.ArgumentParser:
    """A parser of ``recipe``, ``overrides``, ``--profile``, ``--cache`` and ``--dry-run``."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("recipe", type=Path, help="folder of the recipe, with config/*.yaml")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides")
    parser.add_argument("--profile", default=profile, help="name of the recipe's config (%(default)s)")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of finished builds (%(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="build nothing: say what is missing")
    return parser


def stage_parser(module: str, description: str | None, profile: str) -> argparse.ArgumentParser:
    """:func:`recipe_parser` with ``--no-data``, for stages on records."""
    parser = recipe_parser(module, description, profile)
    parser.add_argument("--no-data", action="store_true", help="other records are trained on: make only the model")
    return parser


def print_paths(paths: Mapping[str, Path | None]) -> None:
    """Print one path per line after its name, for the launcher; None prints nothing."""
    for name, path in paths.items():
        if path is not None:
            print(f"{name}: {path}")


def run_builder(main: Callable[[], None]) -> NoReturn:
    """Run a builder: errors are printed as one line ``error: ...``, and nothing half built is left."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    # Of a build that is stopped: what its pools held is given back by the process that would warn of it.
    told = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = f"{told},{NO_LEAK}" if told else NO_LEAK
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        main()
    except Exception as error:
        # what is written in Rust has errors of its own for a disk that is full
        if not isinstance(error, EXPECTED) and os.strerror(errno.ENOSPC) not in str(error):
            raise
        print(f"error: {one_line(error)}", flush=True)
        sys.exit(2)
    end_now()


def _stop(number: int, frame: FrameType | None) -> None:
    """End a build, first the processes of its pools."""
    # The pool's threads would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    # Those that write come before those that wait for them: what is half built is removed as soon as these end.
    for child in reversed(psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            child.kill()
    # An exception, so that temporary folders are removed on the way out.
    sys.exit(128 + number)
