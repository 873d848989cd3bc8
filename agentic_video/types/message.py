"""Chat messages and observations of text, images and clips."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from agentic_video.types.frame import Clip, ClipRef, Frame, FrameRef, is_picture
from agentic_video.types.plain import as_int, as_tuple
from agentic_video.types.text import as_unicode

Visual = Frame | Clip
"""One image, or several frames as one video."""
Part = str | Visual
"""Part of a message: text, one image, or one clip."""
ObservationRole = Literal["user", "tool"]
"""Role of an observation's message in the model's chat template."""


@dataclass(frozen=True)
class Message:
    """One chat message of text, images and clips in order."""

    role: Literal["system", "user"]
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        _read_parts(self)


@dataclass(frozen=True)
class AsideRequest:
    """A side query to the model (:meth:`agentic_video.systems.base.EpisodeView.ask`).

    Attributes:
        messages: A conversation of its own.
        max_tokens: Most generated tokens.
        stop: Texts after which to stop; they stay in the reply.
        prefix: Start of the reply.
    """

    messages: tuple[Message, ...]
    max_tokens: int
    stop: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def frames(self) -> tuple[Frame, ...]:
        """All frames, those of clips included."""
        return tuple(frame for message in self.messages for frame in frames_of(message.parts))


@dataclass(frozen=True)
class Observation:
    """Parts that the agent is shown after a turn, without the chat template's wrapping.

    Attributes:
        legal_calls: Number of the turn's calls that were carried out.
        illegal_calls: Number of those that were refused.
        unread_images: Images that were requested, but not read, as they exceed the episode's budget: it ends.
    """

    parts: tuple[Part, ...]
    legal_calls: int = 0
    illegal_calls: int = 0
    unread_images: int = 0

    def __post_init__(self) -> None:
        _read_parts(self)
        for name in ("legal_calls", "illegal_calls", "unread_images"):
            if type(count := getattr(self, name)) is not int:
                object.__setattr__(self, name, as_int(count, f"Observation.{name}"))

    @property
    def frames(self) -> tuple[Frame, ...]:
        """All frames, those of clips included."""
        return frames_of(self.parts)


def _read_parts(shown: Message | Observation) -> None:
    """Check the parts, which systems make, and convert them to a tuple of pictures and Unicode text."""
    name = f"{type(shown).__name__}.parts"
    parts = as_tuple(shown.parts, name, "part")
    parts = tuple(as_unicode(part) if isinstance(part, str) else part for part in parts)
    object.__setattr__(shown, "parts", parts)
    for number, part in enumerate(parts):
        if isinstance(part, str | FrameRef | ClipRef):  # an episode that is replayed shows references
            continue
        if not isinstance(part, Frame | Clip):
            raise TypeError(f"{name}[{number}] must be a text, a Frame or a Clip, got {type(part).__name__}")
        for frame in part.frames if isinstance(part, Clip) else (part,):
            if frame.origin is None and not is_picture(frame.image):  # a store's frames are pictures
                raise TypeError(
                    f"{name}[{number}] is a picture {_described(frame.image)}; "
                    "it must be uint8 of shape (height, width, 3)"
                )


def _described(image: object) -> str:
    if isinstance(image, np.ndarray):
        return f"of {image.dtype} and shape {image.shape}"
    return f"that is a {type(image).__name__}"


def visuals_of(parts: Sequence[Part]) -> tuple[Visual, ...]:
    """Images and clips of a message, in order."""
    return tuple(part for part in parts if not isinstance(part, str))


def frames_of(parts: Sequence[Part]) -> tuple[Frame, ...]:
    """Frames of a message in order, those of clips included."""
    return tuple(frame for part in visuals_of(parts) for frame in (part.frames if isinstance(part, Clip) else (part,)))


def text_of(parts: Sequence[Part]) -> str:
    """Text of a message, with ``<image>`` for an image and ``<video>`` for a clip."""
    shown = ("<video>" if isinstance(part, Clip) else part if isinstance(part, str) else "<image>" for part in parts)
    return "".join(shown)


def joined(parts: Sequence[Part]) -> list[Part]:
    """Join adjacent texts, so that a text that is spread over them can be found."""
    merged: list[Part] = []
    for part in parts:
        if merged and isinstance(part, str) and isinstance(before := merged[-1], str):
            merged[-1] = before + part
        else:
            merged.append(part)
    return merged
