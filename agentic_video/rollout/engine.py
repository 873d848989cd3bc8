"""The interface between a token policy and an engine."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentic_video.types.message import Visual


@dataclass(frozen=True)
class GenerationRequest:
    """A request for one turn."""

    prompt_ids: Sequence[int]
    """The whole sequence so far, placeholders of images and clips expanded."""
    visuals: Sequence[Visual]
    """Images and clips in the order of their placeholders."""
    stop: Sequence[str]
    """Texts after which to stop; they stay in the output."""
    max_tokens: int
    banned_ids: Collection[int]
    end_ids: Collection[int] = ()
    """Ids after which to stop; they stay in the output."""


@dataclass(frozen=True)
class Completion:
    """One generated turn."""

    token_ids: tuple[int, ...]
    """A stop or end-of-turn token included."""
    log_probs: tuple[float, ...] | None = None
    """Of each id under the sampling policy; None if the engine gives none."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Other reports of the engine (verl: the versions of the weights)."""


class Engine(Protocol):
    """Generates a continuation of token ids with images and clips."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """Generate one turn, or raise EngineError."""
