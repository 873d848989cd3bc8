"""A model behind an OpenAI-compatible server."""

from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.model import ModelSpec, turn_seeds
from agentic_video.families.registry import load_processor
from agentic_video.graders.endpoint import Endpoint
from agentic_video.rollout.chat_policy import ChatPolicy
from agentic_video.rollout.policy import Policy
from agentic_video.rollout.tokens import ChatFormat, TokenLimits
from agentic_video.systems.base import System


class ChatBackend(Backend):
    """A server; see :class:`Backend`."""

    def __init__(self, spec: ModelSpec, visual_token_side: int):
        self.visual_token_side = visual_token_side
        self._spec = spec
        self._endpoint = Endpoint(spec.chat, "model")
        self._reply_start: str | None = None
        self._word_ends: dict[int, str] = {}
        if spec.processor:
            processor = load_processor(spec.processor)
            chat_format = ChatFormat.of(processor, template_kwargs=spec.template_kwargs)
            self._reply_start, self._word_ends = chat_format.reply_start, chat_format.word_ends

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        seeds = turn_seeds(self._spec, episode)
        start, ends = self._reply_start, self._word_ends
        return ChatPolicy(self._endpoint, self._spec.chat, system, limits, seeds, start, ends)
