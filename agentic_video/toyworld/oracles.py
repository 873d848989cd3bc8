"""Scripted agents that know the answer, one for each system's grammar (``systems/<name>/oracle.py``): they read the
row's ``extra_info``.

Each module has a function ``turns(view, aim, word, letter)`` with the texts of a whole episode that looks around second
``aim`` (None: looks only where the system has to) and then answers the option ``letter``, whose text is ``word``.
"""

import math
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Protocol

from agentic_video.systems.base import EpisodeView, System


class Turns(Protocol):
    """See the package's docstring."""

    def __call__(self, view: EpisodeView, aim: float | None, word: str, letter: str) -> tuple[str, ...]: ...


def turns_of(system: System, module: str = "") -> Turns:
    """The oracle of a system.

    Args:
        module: Dotted path of the oracle's module; by default ``oracle`` beside the system's own.

    Raises:
        ValueError: There is none.
    """
    path = module or f"{type(system).__module__.rpartition('.')[0]}.oracle".lstrip(".")
    try:
        found: ModuleType = import_module(path)
        turns: Turns = found.turns
    except (ModuleNotFoundError, AttributeError) as error:
        raise ValueError(
            f"system {system.name!r} has no oracle for the synthetic world ({error}): write a module with a function "
            "'turns' and name it in agentic_video.toyworld.oracle"
        ) from error
    return turns


def oracle(turns: Turns) -> Callable[[EpisodeView], str]:
    """An oracle as a script for :class:`agentic_video.rollout.policy.ScriptedPolicy`."""

    def say(view: EpisodeView) -> str:
        extra = view.qa.extra
        time = extra["event_time"]
        said = turns(view, None if time is None else math.floor(time), str(extra["answer_text"]), view.qa.answer)
        return said[min(len(view.turns), len(said) - 1)]

    return say
