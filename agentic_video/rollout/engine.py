"""What a token policy asks of an engine: a request for one turn, and its completion."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentic_video.types.message import Visual


@dataclass(frozen=True)
class GenerationRequest:
    """One turn that is to be generated.

    Attributes:
        prompt_ids: The whole sequence so far, placeholders of images and clips expanded.
        visuals: The images and clips in the order of their placeholders.
        stop: Texts after which to stop; they stay in the output.
        max_tokens: At most this many new ids.
        banned_ids: Ids that must not be sampled.
    """

    prompt_ids: Sequence[int]
    visuals: Sequence[Visual]
    stop: Sequence[str]
    max_tokens: int
    banned_ids: Collection[int]


@dataclass(frozen=True)
class Completion:
    """What an engine generated for one turn.

    Attributes:
        token_ids: The generated ids, a stop or end-of-turn token included.
        log_probs: Log-probability of each id under the sampling policy, or None when the engine gives none.
        extra: Whatever else the engine reports (verl: the versions of the weights).
    """

    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class Engine(Protocol):
    """Generates a continuation of token ids with images and clips."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """Generate one turn.

        Raises:
            EngineError: Nothing could be generated.
        """
