"""What a turn of the model asks for."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentic_video.types.plain import as_tuple, plain, require_str


@dataclass(frozen=True)
class ToolCall:
    """A request for a tool: its name and its arguments as the model wrote them (not checked yet).

    Raises:
        TypeError: The name is no text, or the arguments are no plain data by name: a record couldn't hold them.
            Numbers of numpy become plain ones.
    """

    name: str
    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        require_str(self.name, "ToolCall.name")
        if not isinstance(self.arguments, Mapping):
            raise TypeError(f"ToolCall.arguments must be a dictionary, got {type(self.arguments).__name__}")
        try:
            json.dumps(self.arguments)  # far quicker than a look at each value
        except TypeError:
            object.__setattr__(self, "arguments", plain(self.arguments, "ToolCall.arguments"))


REFUSED = "refused"
"""Stands in the place of a call that can't be read; its argument ``reason`` says why. No tool has this name."""


def refused(reason: str) -> ToolCall:
    """What stands in the place of a call that can't be read, where the others of its turn are carried out."""
    return ToolCall(REFUSED, {"reason": reason})


@dataclass(frozen=True)
class Calls:
    """A turn that asks for tools.

    Raises:
        TypeError: The calls are one that isn't in a tuple, or one of them is something else.
    """

    calls: tuple[ToolCall, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "calls", as_tuple(self.calls, "Calls.calls", "call"))
        for number, call in enumerate(self.calls):
            if not isinstance(call, ToolCall):
                raise TypeError(f"Calls.calls[{number}] must be a ToolCall, got {type(call).__name__}")


@dataclass(frozen=True)
class Answer:
    """A turn that answers the question.

    Raises:
        TypeError: The text is none.
    """

    text: str

    def __post_init__(self) -> None:
        require_str(self.text, "Answer.text")


@dataclass(frozen=True)
class Illegal:
    """A turn that is neither: ``reason`` says why.

    Raises:
        TypeError: The reason is no text.
    """

    reason: str

    def __post_init__(self) -> None:
        require_str(self.reason, "Illegal.reason")


Action = Calls | Answer | Illegal
