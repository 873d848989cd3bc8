"""Chat messages of text and images, and what an agent is shown after a turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentic_video.types.frame import Frame

Part = str | Frame
"""A piece of a message: text, or one image."""


@dataclass(frozen=True)
class Message:
    """One chat message of text and images in the order in which they are shown."""

    role: Literal["system", "user"]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Observation:
    """What the agent is shown after a turn.

    Attributes:
        parts: Text and images in order, without the chat template's wrapping.
        legal_calls: How many of the turn's calls were carried out.
        illegal_calls: How many were refused.
        unread_images: Images that were asked for and not read, as an episode may not hold so many: it ends.
    """

    parts: tuple[Part, ...]
    legal_calls: int = 0
    illegal_calls: int = 0
    unread_images: int = 0

    @property
    def frames(self) -> tuple[Frame, ...]:
        return tuple(part for part in self.parts if not isinstance(part, str))


def text_of(parts: Sequence[Part]) -> str:
    """The text of a message, an image written as ``<image>``."""
    return "".join(part if isinstance(part, str) else "<image>" for part in parts)


def joined(parts: Sequence[Part]) -> list[Part]:
    """The same with adjacent texts as one: what is spread over them shows."""
    whole: list[Part] = []
    for part in parts:
        if whole and isinstance(part, str) and isinstance(before := whole[-1], str):
            whole[-1] = before + part
        else:
            whole.append(part)
    return whole
