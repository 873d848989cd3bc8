"""The tiny model on an engine of its own, as a backend of evaluations."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agentic_video.evaluation.model import ModelSpec, turn_seeds
from agentic_video.rollout.policy import Policy
from agentic_video.rollout.tokens import ChatFormat, Completion, TokenLimits, TokenPolicy
from agentic_video.systems.base import System
from agentic_video.types.frame import Frame


class ToyBackend:
    """The tiny model's engine."""

    def __init__(self, spec: ModelSpec):
        from agentic_video.toyworld.engine import BatchEngine
        from agentic_video.toyworld.model import FAMILIES, family_of, image_processor, load_checkpoint

        model, tokenizer = load_checkpoint(Path(spec.model))
        model.eval()
        family = family_of(model)
        self.factor = FAMILIES[family].frame_side
        self._spec = spec
        self._engine = BatchEngine(model, tokenizer, temperature=spec.temperature, seed=spec.seed)
        self._format = ChatFormat(tokenizer, image_processor(family))

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        return TokenPolicy(_ToyEngine(self._engine, turn_seeds(self._spec, episode)), self._format, limits, system)

    def close(self) -> None:
        pass


class _ToyEngine:
    """One episode's view of the tiny model's engine; see :class:`agentic_video.rollout.tokens.Engine`."""

    def __init__(self, engine: Any, seeds: Iterator[int | None]):
        self._engine, self._seeds = engine, seeds

    async def generate(self, prompt_ids: Sequence[int], frames: Sequence[Frame], **limits: Any) -> Completion:
        completion: Completion = await self._engine.generate(prompt_ids, frames, **limits, seed=next(self._seeds))
        return completion
