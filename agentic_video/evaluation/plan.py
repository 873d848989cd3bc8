"""The plan of a shard: plain data, so that it can travel to other machines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentic_video.config.settings import Settings
from agentic_video.evaluation.model import ModelSpec
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import System

ANSWER_TOKENS = 2_048
"""Most tokens of the only reply of an episode without tools."""


@dataclass(frozen=True)
class EvalPlan:
    """Everything that a shard needs."""

    folder: Path  # of the journals, visible to all shards
    settings: Settings  # with the system that plays
    model: ModelSpec
    limits: TokenLimits
    concurrency: int  # episodes at a time
    provenance: Mapping[str, Any] = field(default_factory=dict)  # of every record

    @property
    def system(self) -> System:
        """The system that plays."""
        return self.settings.system


def fit_limits(system: System, limits: TokenLimits) -> TokenLimits:
    """Token budgets for a system: one that answers at once needs room for its frames, not for turns."""
    if system.max_turns > 1:
        return limits
    total = limits.prompt + limits.response
    answer = min(limits.turn, ANSWER_TOKENS, max(1, total // 4))
    return TokenLimits(prompt=total - answer, response=answer, turn=answer)
