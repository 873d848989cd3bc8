"""The tiny model on an engine of its own, as a backend of evaluations."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.model import ModelSpec, turn_seeds
from agentic_video.rollout.engine import Completion, GenerationRequest
from agentic_video.rollout.policy import Policy
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy
from agentic_video.systems.base import System


class ToyBackend(Backend):
    """The tiny model's engine; see :class:`Backend`."""

    one_token_frames = True

    def __init__(self, spec: ModelSpec, visual_token_side: int):
        from agentic_video.toyworld.engine import BatchEngine
        from agentic_video.toyworld.model import FAMILIES, family_of, image_processor, load_checkpoint

        model, tokenizer = load_checkpoint(Path(spec.model))
        model.eval()
        family = family_of(model)
        self.visual_token_side = FAMILIES[family].frame_side
        self._spec = spec
        self._engine = BatchEngine(model, tokenizer, temperature=spec.temperature, seed=spec.seed)
        self._format = ChatFormat(tokenizer, image_processor(family))

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        return TokenPolicy(_ToyEngine(self._engine, turn_seeds(self._spec, episode)), self._format, limits, system)


class _ToyEngine:
    """One episode's view of the tiny model's engine; see :class:`agentic_video.rollout.engine.Engine`."""

    def __init__(self, engine: Any, seeds: Iterator[int | None]):
        self._engine, self._seeds = engine, seeds

    async def generate(self, request: GenerationRequest) -> Completion:
        completion: Completion = await self._engine.generate(request, seed=next(self._seeds))
        return completion
