"""Qwen2.5-VL: one run of placeholders for a clip, whose positions follow its times; windows in the vision tower."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agentic_video.families.qwen_vl import TEXT_ONLY, QwenVL, layout_seam, modules_of
from agentic_video.families.shapes import ActivationBytes, VisionShape

if TYPE_CHECKING:
    from agentic_video.families.tiny import TinyModels


class Qwen25VL(QwenVL):
    """The family."""

    model_types = ("qwen2_5_vl",)
    processor_classes = ("Qwen2_5_VLProcessor",)
    example = "Qwen/Qwen2.5-VL-7B-Instruct"
    preloaded = modules_of("qwen2_5_vl")
    seams = (TEXT_ONLY, layout_seam("qwen2_5_vl", get_vision_window_index="19616bef14c5"))
    activations = ActivationBytes(heads=5, block_hidden=24, block_intermediate=12)

    def timed_grids(
        self, vision: Any, clips: Sequence[Sequence[int]], seconds: Sequence[float]
    ) -> list[tuple[Sequence[int], float]]:
        return [(grid, step * vision.tokens_per_second) for grid, step in zip(clips, seconds, strict=True)]

    def prepare_vllm(self) -> None:
        """Have vLLM use the times of a clip's frames; it assumes 24 frames a second."""
        from agentic_video.families.qwen2_5_vl_clips import keep_clip_times

        keep_clip_times()

    def block_parameters(self, vision: VisionShape) -> int:
        """See the base; a gated MLP with biases, RMS norms."""
        width, inner = vision.hidden, vision.intermediate
        return 4 * width * width + 4 * width + 3 * width * inner + 2 * inner + width + 2 * width

    def tower_parameters(self, vision: VisionShape, out: int) -> int:
        patches = vision.hidden * vision.patch_values
        ends = vision.hidden + self.merger_parameters(vision, out)
        return patches + vision.depth * self.block_parameters(vision) + ends

    @cached_property
    def tiny(self) -> "TinyModels":
        from agentic_video.families.qwen_vl_tiny import TinyQwen25VL

        return TinyQwen25VL(self.timed_grids)
