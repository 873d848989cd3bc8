"""What a turn of the model asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ToolCall:
    """A request for a tool: its name and its arguments as the model wrote them (not checked yet)."""

    name: str
    arguments: Mapping[str, Any]


REFUSED = "refused"
"""Stands in the place of a call that can't be read; its argument ``reason`` says why. No tool has this name."""


def refused(reason: str) -> ToolCall:
    """What stands in the place of a call that can't be read, where the others of its turn are carried out."""
    return ToolCall(REFUSED, {"reason": reason})


@dataclass(frozen=True)
class Calls:
    """A turn that asks for tools."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True)
class Answer:
    """A turn that answers the question."""

    text: str


@dataclass(frozen=True)
class Illegal:
    """A turn that is neither: ``reason`` says why."""

    reason: str


Action = Calls | Answer | Illegal
