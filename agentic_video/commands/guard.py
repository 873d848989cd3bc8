"""What the commands that run models have in common: the environment of their processes, and their exit statuses."""

import argparse
import os
import sys
from collections.abc import Callable


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
        The command's exit status; 2 with a message when it couldn't start, 130 when it was interrupted.
    """
    if models:
        set_environment()
    from hydra.errors import HydraException
    from omegaconf.errors import InterpolationResolutionError

    from agentic_video.utils.errors import SetupError

    try:
        return work(arguments)
    except InterpolationResolutionError as error:
        print(f"error: {error}\nset that variable, or the key itself: {error.full_key}=...", file=sys.stderr)
        return 2
    except (SetupError, HydraException, ValueError) as error:  # a RowError is a ValueError
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
