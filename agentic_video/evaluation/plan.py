"""What a shard of an evaluation needs; plain data."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentic_video.evaluation.model import ModelSpec
from agentic_video.graders.judge import JudgeConfig
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import System
from agentic_video.systems.reward_function import SCORE_TIMEOUT
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.store_config import StoreConfig

ANSWER_TOKENS = 2_048
"""Most tokens of a reply that is a single one: without tools."""


@dataclass(frozen=True)
class Plan:
    """All that a shard needs; plain data, so that it can travel to other machines."""

    folder: Path  # where the journals are; all shards must see it
    system: System
    model: ModelSpec
    limits: TokenLimits  # token budgets of an episode
    frame_store: StoreConfig
    retrieval: RetrievalConfig
    judge: JudgeConfig
    concurrency: int  # episodes at a time
    provenance: Mapping[str, Any]  # noted in every record
    score_timeout: float = SCORE_TIMEOUT  # seconds that grading an episode may take, without what the judge takes


def fit_limits(system: System, limits: TokenLimits) -> TokenLimits:
    """Token budgets for a system: one that answers at once needs room for its frames, not for turns."""
    if system.max_turns > 1:
        return limits
    total = limits.prompt + limits.response
    answer = min(limits.turn, ANSWER_TOKENS, max(1, total // 4))
    return TokenLimits(prompt=total - answer, response=answer, turn=answer)
