"""A model on vLLM in this process."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.model import ModelSpec, turn_seeds
from agentic_video.families.registry import load_processor
from agentic_video.rollout.engine import Completion, GenerationRequest
from agentic_video.rollout.policy import EngineError, Policy
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy
from agentic_video.rollout.vllm_prompts import clip_item, one_placeholder
from agentic_video.systems.base import System
from agentic_video.types.frame import Clip
from agentic_video.types.message import Visual
from agentic_video.utils.environment import spawn_engines


class VllmBackend(Backend):
    """vLLM in this process; see :class:`Backend`. The model says itself how large its visual tokens are."""

    def __init__(self, spec: ModelSpec, visual_token_side: int):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._format = ChatFormat.of(load_processor(spec.model), template_kwargs=spec.template_kwargs)
        self.chat_format = self._format
        self._format.family.prepare_vllm()
        spawn_engines()
        self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(model=spec.model, seed=max(0, spec.seed), **spec.vllm))
        self._spec = spec

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        engine = _VllmEngine(self._llm, self._format, self._spec, turn_seeds(self._spec, episode))
        return TokenPolicy(engine, self._format, limits, system)

    def close(self) -> None:
        self._llm.shutdown()


class _VllmEngine:
    """One episode's view of vLLM; see :class:`agentic_video.rollout.engine.Engine`."""

    def __init__(self, llm: Any, chat_format: ChatFormat, spec: ModelSpec, seeds: Iterator[int | None]):
        self._llm, self._format, self._spec, self._seeds = llm, chat_format, spec, seeds

    async def generate(self, request: GenerationRequest) -> Completion:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        prompt = vllm_prompt(request.prompt_ids, request.visuals, self._format)
        sampling = SamplingParams(
            temperature=self._spec.temperature,
            top_p=self._spec.top_p,
            seed=next(self._seeds),
            max_tokens=request.max_tokens,
            stop=list(request.stop),
            stop_token_ids=sorted(request.end_ids),
            include_stop_str_in_output=True,
            skip_special_tokens=False,
            logit_bias=dict.fromkeys(request.banned_ids, -100.0),
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        ids: tuple[int, ...] = ()
        try:
            async for output in self._llm.generate(prompt, sampling, uuid4().hex):
                ids = tuple(output.outputs[0].token_ids)
        except Exception as error:
            raise EngineError(f"{type(error).__name__}: {error}") from error
        return Completion(ids)


def vllm_prompt(ids: Sequence[int], shown: Sequence[Visual], chat_format: ChatFormat) -> Any:
    """A prompt as vLLM takes it, from a rollout's ids and the images and clips of their placeholders."""
    from PIL import Image
    from vllm.inputs import TokensPrompt

    clips = [visual for visual in shown if isinstance(visual, Clip)]
    images = [Image.fromarray(visual.image) for visual in shown if not isinstance(visual, Clip)]
    videos = [clip_item([frame.image for frame in clip.frames], clip.times) for clip in clips]
    prompt = TokensPrompt(prompt_token_ids=one_placeholder(ids, shown, chat_format))
    if data := {kind: items for kind, items in (("image", images), ("video", videos)) if items}:
        prompt["multi_modal_data"] = data
    return prompt
