"""A patch of verl's server, which leaves vLLM one placeholder an image for Qwen's models only."""

from functools import wraps
from types import ModuleType
from typing import Any

from agentic_video.families.registry import family_of
from agentic_video.utils.seam import Seam

COLLAPSED = Seam(
    "agentic_video.families.placeholders:collapsed_placeholders",
    "verl.workers.rollout.vllm_rollout.vllm_async_server",
    {"verl.workers.rollout.utils:qwen2_5_vl_dedup_image_tokens": "2e117e8a2b9e"},
    "vLLM wants one placeholder an image, and verl leaves one for one class of processors",
)


def collapsed_placeholders(server: ModuleType) -> None:
    """Send vLLM one placeholder an image; verl does so for one class of processors."""
    original = server.qwen2_5_vl_dedup_image_tokens

    @wraps(original)
    def qwen2_5_vl_dedup_image_tokens(prompt_ids: Any, processor: Any) -> Any:
        made = original(prompt_ids, processor)
        if made is not prompt_ids or processor is None:
            return made

        def encode(text: str) -> list[int]:
            return list(processor.tokenizer(text, add_special_tokens=False)["input_ids"])

        return family_of(processor).one_placeholder(encode, prompt_ids)

    server.qwen2_5_vl_dedup_image_tokens = qwen2_5_vl_dedup_image_tokens  # type: ignore[attr-defined]
