"""Scripted agents that know the answer, one for each system's grammar: they read the row's ``extra_info``.

A system's oracle is the module ``oracle`` beside its class. It has a function ``turns(view, aim, word, letter)`` (see
:class:`Turns`).
"""

import math
from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from agentic_video.systems.base import EpisodeView, System


class Turns(Protocol):
    """An oracle."""

    def __call__(self, view: EpisodeView, aim: float | None, word: str, letter: str, seen: str = "") -> tuple[str, ...]:
        """The texts of a whole episode.

        Args:
            view: The episode before its first turn.
            aim: Second to look around; None looks only where the system has to.
            word: Text of the option to answer.
            letter: Its letter.
            seen: What was seen before, in words that every thought begins with; the second to look at follows them
                without a space. Only questions of the kind ``search`` are asked with it: their oracle takes one look
                after the other.
        """


def turns_of(system: System, module: str = "") -> Turns:
    """The oracle of a system.

    Args:
        system: The system whose grammar it must write.
        module: Dotted path of the oracle's module; by default ``oracle`` beside the system's own.

    Raises:
        ValueError: There is none.
    """
    package, _, _ = type(system).__module__.rpartition(".")
    beside = f"{package}.oracle" if package else "oracle"
    try:
        turns: Turns = import_module(module or beside).turns
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
