"""An evaluation backend that runs the tiny model in this process."""

from pathlib import Path

from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.model import ModelSpec, turn_seeds
from agentic_video.rollout.policy import Policy
from agentic_video.rollout.tokens import TokenLimits, TokenPolicy
from agentic_video.systems.base import System
from agentic_video.toyworld.engine import BatchEngine, SeededEngine
from agentic_video.toyworld.model import chat_format, load_checkpoint


class ToyBackend(Backend):
    """Backend of the tiny model."""

    one_token_frames = True

    def __init__(self, spec: ModelSpec, visual_token_side: int):
        model, tokenizer = load_checkpoint(Path(spec.model))
        model.eval()
        self._spec = spec
        self._engine = BatchEngine(model, tokenizer, temperature=spec.temperature, seed=spec.seed)
        self.chat_format = self._format = chat_format(tokenizer, model.config.model_type, spec.template_kwargs)

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        engine = SeededEngine(self._engine, turn_seeds(self._spec, episode))
        return TokenPolicy(engine, self._format, limits, system)
