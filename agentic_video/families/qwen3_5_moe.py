"""Qwen3.5 with experts in place of each decoder layer's MLP."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from agentic_video.families.qwen3_5 import Qwen35
from agentic_video.families.qwen_vl import layout_seam
from agentic_video.families.shapes import ExpertShape, TextShape
from agentic_video.utils.seam import Seam

if TYPE_CHECKING:
    from agentic_video.families.tiny import TinyModels

LIVE_EXPERTS = Seam(
    "agentic_video.families.qwen3_5_moe:live_experts",
    "vllm.model_executor.layers.fused_moe.cpu_fused_moe",
    {"vllm.model_executor.layers.fused_moe.cpu_fused_moe:CPUFusedMOE": "cfb7ed96eb8e"},
    "on a CPU experts' weights are packed, which a weight sync can't reach",
    cpu_only=True,
)


class Qwen35Moe(Qwen35):
    """The family; Qwen3.6's and 3.8's have its ``model_type``, too."""

    model_types = ("qwen3_5_moe",)
    example = "Qwen/Qwen3.5-35B-A3B"
    preloaded = ("transformers.models.qwen3_5_moe.modeling_qwen3_5_moe",)  # vLLM's is in the dense model's module
    seams = (layout_seam("qwen3_5_moe", get_vision_bilinear_indices_and_weights="73cd5334bab9"),)
    vllm_seams = (*Qwen35.vllm_seams, LIVE_EXPERTS)

    def text_shape(self, config: Mapping[str, Any]) -> TextShape:
        text = config["text_config"]
        experts = ExpertShape(
            count=text["num_experts"],
            active=text["num_experts_per_tok"],
            width=text["moe_intermediate_size"],
            shared=text["shared_expert_intermediate_size"],
        )
        used = experts.active * experts.width + experts.shared
        shape = super().text_shape({**config, "text_config": {**text, "intermediate_size": used}})
        return replace(shape, experts=experts)

    def mlp_parameters(self, text: TextShape) -> int:
        experts = text.experts
        if experts is None:
            return super().mlp_parameters(text)
        widths = experts.count * experts.width + experts.shared
        return text.hidden * (3 * widths + experts.count + 1)  # the router, and the shared expert's gate

    def mlp_ends(self, text: TextShape) -> int:
        """See the base; PEFT adapts the shared expert alone, with its gate."""
        shared = text.experts.shared if text.experts else text.intermediate
        return 3 * (text.hidden + shared) + text.hidden + 1

    @cached_property
    def tiny(self) -> "TinyModels":
        from agentic_video.families.qwen_vl_tiny import TinyQwen35Moe

        return TinyQwen35Moe(self.timed_grids)


def live_experts(cpu_fused_moe: ModuleType) -> None:
    """Have vLLM multiply by float32 experts' own weights; its activation for that is made where it can't be."""
    packed = cpu_fused_moe.CPUFusedMOE.check_grouped_gemm

    def check_grouped_gemm(self: Any, layer: Any) -> tuple[bool, str]:
        import torch

        return (False, "none") if layer.w13_weight.dtype == torch.float32 else packed(self, layer)

    def silu_and_mul(values: Any) -> Any:
        gate, up = values.chunk(2, -1)
        return gate.sigmoid() * gate * up

    cpu_fused_moe.CPUFusedMOE.check_grouped_gemm = check_grouped_gemm
    cpu_fused_moe._CPU_MOE_ACT_FN[cpu_fused_moe.MoEActivation.SILU] = silu_and_mul
