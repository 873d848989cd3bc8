"""Qwen2-VL: one run of placeholders for a clip, whose times the model isn't told."""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agentic_video.families.qwen_vl import TEXT_ONLY, QwenVL, layout_seam
from agentic_video.families.shapes import ActivationBytes, VisionShape

if TYPE_CHECKING:
    from agentic_video.families.tiny import TinyModels


class Qwen2VL(QwenVL):
    """The family."""

    model_types = ("qwen2_vl",)
    processor_classes = ("Qwen2VLProcessor",)
    seams = (TEXT_ONLY, layout_seam("qwen2_vl"))
    activations = ActivationBytes(heads=5, block_hidden=23, block_intermediate=9, ends=11)

    def vision_shape(self, config: Mapping[str, Any]) -> VisionShape:
        vision = config["vision_config"]
        width = vision["embed_dim"]  # its hidden_size is the language model's
        sizes = {"hidden_size": width, "intermediate_size": int(width * vision["mlp_ratio"])}
        return super().vision_shape({"vision_config": {**vision, **sizes}})

    def block_parameters(self, vision: VisionShape) -> int:
        width, inner = vision.hidden, vision.intermediate
        return 4 * width * width + 4 * width + 2 * width * inner + inner + width + 4 * width

    def tower_parameters(self, vision: VisionShape, out: int) -> int:
        ends = vision.hidden * vision.patch_values + 2 * vision.hidden + self.merger_parameters(vision, out)
        return ends + vision.depth * self.block_parameters(vision)

    @cached_property
    def tiny(self) -> "TinyModels":
        from agentic_video.families.qwen_vl_tiny import TinyQwen2VL

        return TinyQwen2VL(self.timed_grids)
