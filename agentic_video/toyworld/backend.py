"""An evaluation backend that runs the tiny model in this process."""

from pathlib import Path

from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.model import ModelSpec, turn_seeds
from agentic_video.rollout.policy import Policy
from agentic_video.rollout.tokens import TokenLimits, TokenPolicy
from agentic_video.systems.base import System
from agentic_video.toyworld.engine import BatchEngine, SeededEngine
from agentic_video.toyworld.model import FAMILIES, chat_format, family_of, load_checkpoint


class ToyBackend(Backend):
    """Backend of the tiny model."""

    one_token_frames = True

    def __init__(self, spec: ModelSpec, visual_token_side: int):
        model, tokenizer = load_checkpoint(Path(spec.model))
        model.eval()
        family = family_of(model)
        self.visual_token_side = FAMILIES[family].frame_side
        self._spec = spec
        self._engine = BatchEngine(model, tokenizer, temperature=spec.temperature, seed=spec.seed)
        self._format = chat_format(tokenizer, family, spec.template_kwargs)

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        engine = SeededEngine(self._engine, turn_seeds(self._spec, episode))
        return TokenPolicy(engine, self._format, limits, system)
