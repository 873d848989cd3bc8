"""Which parameters of a test are with the fast tests, where each takes long."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def a_few(values: Iterable[Any], fast: Callable[[Any], bool], spread: bool = False) -> list[Any]:
    """Parameters of which those that aren't fast ones are marked slow.

    Args:
        values: The parameters.
        fast: Whether one is with the fast tests.
        spread: Whether each is a tuple of several parameters.
    """
    return [pytest.param(*(one if spread else (one,)), marks=() if fast(one) else pytest.mark.slow) for one in values]


def a_few_systems(systems: Iterable[str], *fast: str) -> list[Any]:
    """Systems of which all but the named ones are marked slow.

    By default one that goes on in a list of messages with one tool, and one with sub-agents and clips.
    """
    return a_few(systems, lambda name: name in (fast or ("videozoomer", "paravt")))
