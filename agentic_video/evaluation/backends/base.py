"""The interface of engines and servers that play a model's part in episodes."""

from abc import ABC, abstractmethod
from typing import ClassVar

from agentic_video.evaluation.model import ModelSpec
from agentic_video.rollout.chat_policy import ChatPolicy, Usage
from agentic_video.rollout.policy import Policy
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy
from agentic_video.systems.base import System


class Backend(ABC):
    """Makes the policies of an evaluation's episodes.

    A custom subclass is named by its dotted path (``--engine my_package.engines.MyBackend``). It is made once in each
    process, where its event loop runs, before the first episode; it raises a SetupError where the model can't be loaded
    or reached.

    Args:
        spec: The model; ``spec.model`` may be whatever the class takes.
        visual_token_side: The system's, for models that don't tell their own.
    """

    one_token_frames: ClassVar[bool] = False
    """Its models see each frame as a single visual token: a baseline's frames are then that small."""

    takes_clips: ClassVar[bool] = True
    """Frames can be shown as one video."""

    chat_format: ChatFormat | None = None
    """Of a backend that renders prompts itself."""

    visual_token_side: int
    """Pixels along each side of one visual token, where ``chat_format`` doesn't count them."""

    @abstractmethod
    def __init__(self, spec: ModelSpec, visual_token_side: int): ...

    @abstractmethod
    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        """A policy for one episode within token budgets.

        An episode that is named is sampled alike whatever else is played, in any order; None leaves sampling to the
        engine's own state.
        """

    def close(self) -> None:
        """Let go of the model."""
        return


def usage_of(policy: Policy) -> Usage:
    """Tokens of a policy's episode. An engine in this process reuses what it has seen: its prompt counts once."""
    if isinstance(policy, ChatPolicy):
        return policy.usage
    if isinstance(policy, TokenPolicy):
        said = sum(sum(sequence.response_mask) for sequence in policy.sequences)
        prompt = policy.num_tokens - sum(policy.sequence.response_mask) if policy.sequence else 0
        return Usage(prompt, said, 0) + Usage(*policy.asides_usage)
    return Usage()
