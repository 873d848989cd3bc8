"""What plays a model's part in episodes."""

from typing import Protocol

from agentic_video.rollout.chat_policy import ChatPolicy, Usage
from agentic_video.rollout.policy import Policy
from agentic_video.rollout.tokens import TokenLimits, TokenPolicy
from agentic_video.systems.base import System


class Backend(Protocol):
    """Makes the policies of an evaluation's episodes."""

    factor: int
    """Pixels along each side of one visual token."""

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        """A policy for one episode.

        Args:
            episode: Which one it is: the same episode is sampled alike whatever else is played, in any order. None
                leaves sampling to the engine's own state.
        """

    def close(self) -> None:
        """Let go of the model."""


def usage_of(policy: Policy) -> Usage:
    """What a policy's episode cost in tokens. An engine in this process reuses what it has seen: its prompt counts
    once."""
    if isinstance(policy, ChatPolicy):
        return policy.usage
    if isinstance(policy, TokenPolicy):
        said = sum(sum(sequence.response_mask) for sequence in policy.sequences)
        return Usage(policy.num_tokens - sum(policy.sequence.response_mask) if policy.sequence else 0, said, 0)
    return Usage()
