"""A mend of vLLM's GLM-4.1V and 4.6V: one clip a prompt, GLM-4.6V's without decimals, and with images' placeholder."""

from collections.abc import Mapping
from typing import Any

from agentic_video.families.qwen_vl_clips import FRAMES_OF_PATCH


def mend_clips() -> None:
    """Make vLLM write clips as the checkpoint's processor does, before an engine is made; see the module."""
    from vllm.model_executor.models import glm4_1v

    info: Any = glm4_1v.Glm4vProcessingInfo
    original = info._get_video_second_idx_glm46v
    if getattr(original, "_agentic_video", False):
        return

    def seconds(self: Any, metadata: Mapping[str, Any], total_frames: int) -> list[float]:
        if metadata.get("do_sample_frames", True):
            return list(original(self, metadata, total_frames))
        return [frame / metadata["fps"] for frame in metadata["frames_indices"][::FRAMES_OF_PATCH]]

    seconds._agentic_video = True  # type: ignore[attr-defined]
    info._get_video_second_idx_glm46v = seconds
    info.get_supported_mm_limits = lambda self: {"image": None, "video": None}
    # Clips with a placeholder of their own, as in prompts of GLM-4.1V and with transformers before 5.10.
    glm4_1v.TRANSFORMERS_WITH_GA = False
