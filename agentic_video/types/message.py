"""Chat messages of text, images and clips, and what an agent is shown after a turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from agentic_video.types.frame import Clip, ClipRef, Frame, FrameRef, is_picture
from agentic_video.types.plain import as_int, as_tuple
from agentic_video.types.text import as_unicode

Visual = Frame | Clip
"""What a model looks at: one image, or several frames as one video."""
Part = str | Visual
"""A piece of a message: text, one image, or one clip."""
ObservationRole = Literal["user", "tool"]
"""Whose message an observation is, as the model's chat template writes it."""


@dataclass(frozen=True)
class Message:
    """One chat message of text, images and clips in the order in which they are shown.

    Raises:
        TypeError: The parts are one part that isn't in a tuple, one of them is something else, or a picture isn't uint8
            of shape (height, width, 3).
    """

    role: Literal["system", "user"]
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        _read_parts(self)


@dataclass(frozen=True)
class AsideRequest:
    """A side query to the model (:meth:`agentic_video.systems.base.EpisodeView.ask`).

    Attributes:
        messages: Its own conversation, which the model continues.
        max_tokens: Most generated tokens.
        stop: Texts after which to stop; they stay in the reply.
        prefix: What the reply starts with.
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
    """What the agent is shown after a turn.

    Attributes:
        parts: Text, images and clips in order, without the chat template's wrapping.
        legal_calls: How many of the turn's calls were carried out.
        illegal_calls: How many were refused.
        unread_images: Images that were asked for and not read, as an episode may not hold so many: it ends.

    Raises:
        TypeError: The parts are none, as for :class:`Message`, or a number is no whole one.
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
    """See that the parts can be shown, and make a tuple of a list or of a generator, which is read once only.

    What a model wrote, and is shown again, may hold half of a surrogate pair, which no tokenizer takes.
    """
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
    """The images and clips of a message, in order."""
    return tuple(part for part in parts if not isinstance(part, str))


def frames_of(parts: Sequence[Part]) -> tuple[Frame, ...]:
    """The frames of a message in order, those of clips included."""
    return tuple(frame for part in visuals_of(parts) for frame in (part.frames if isinstance(part, Clip) else (part,)))


def text_of(parts: Sequence[Part]) -> str:
    """The text of a message, an image written as ``<image>`` and a clip as ``<video>``."""
    shown = ("<video>" if isinstance(part, Clip) else part if isinstance(part, str) else "<image>" for part in parts)
    return "".join(shown)


def joined(parts: Sequence[Part]) -> list[Part]:
    """The same with adjacent texts as one: what is spread over them shows."""
    whole: list[Part] = []
    for part in parts:
        if whole and isinstance(part, str) and isinstance(before := whole[-1], str):
            whole[-1] = before + part
        else:
            whole.append(part)
    return whole
