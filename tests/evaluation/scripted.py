"""Engines of a user's own, as evaluations find them: classes by their dotted paths."""

import json
from pathlib import Path

from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.model import ModelSpec
from agentic_video.rollout.policy import Policy, ScriptedPolicy
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import System
from agentic_video.toyworld.oracles import oracle_policy, turns_of


def named(name: str) -> str:
    """The dotted path of a class of this module."""
    return f"{__name__}.{name}"


class OracleBackend(Backend):
    """Its agent looks where the event is and knows the answer, in each system's own words."""

    def __init__(self, spec: ModelSpec, visual_token_side: int):
        self.visual_token_side = visual_token_side

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        return oracle_policy(turns_of(system))


class FileBackend(Backend):
    """Its agent says what a JSON file holds, whose path is the model: the turns of each question by its id."""

    def __init__(self, spec: ModelSpec, visual_token_side: int):
        self.visual_token_side = visual_token_side
        self.says: dict[str, list[str]] = json.loads(Path(spec.model).read_text(encoding="utf-8"))

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        return ScriptedPolicy(lambda view: self.says[view.qa.id][len(view.turns)])


class CountingBackend(OracleBackend):
    """Counts how often it was closed."""

    def __init__(self, spec: ModelSpec, visual_token_side: int):
        super().__init__(spec, visual_token_side)
        self.closed = 0

    def close(self) -> None:
        self.closed += 1
