"""Qwen3.5: Qwen3-VL without DeepStack, and linear attention in three of four decoder layers."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from agentic_video.families.qwen3_vl import Qwen3VL
from agentic_video.families.qwen_vl import layout_seam, modules_of
from agentic_video.families.shapes import ActivationBytes, LinearShape, TextShape
from agentic_video.utils.seam import Seam

if TYPE_CHECKING:
    from agentic_video.families.tiny import TinyModels

CPU_SEAMS = (
    Seam(
        "agentic_video.families.qwen3_5_cpu:float32_operator",
        "vllm.model_executor.layers.mamba.ops.cpu.gdn_attention",
        {"vllm.model_executor.layers.mamba.ops.cpu.gdn_attention:cpu_gdn_attention_core": "e90e75cab8a9"},
        "the gated delta net's kernels for CPUs take bfloat16 alone, and pack its convolution for AMX",
        "vllm-project/vllm#41025",
        cpu_only=True,
    ),
    Seam(
        "agentic_video.families.qwen3_5_cpu:prefix_caching",
        "vllm.platforms.cpu",
        {"vllm.platforms.cpu:CpuPlatform.check_and_update_config": "39f0a6507eec"},
        "on a CPU with AMX models with linear attention lose prefix caching and chunked prefill, whatever their type",
        cpu_only=True,
    ),
    Seam(
        "agentic_video.families.qwen3_5_cpu:copied_blocks",
        "vllm.v1.worker.mamba_utils",
        {"vllm.v1.worker.mamba_utils:batch_memcpy": "071737b8bf7a"},
        "prefix caching copies the states of linear attention with a Triton kernel",
        cpu_only=True,
    ),
)
"""vLLM's own kernels are for bfloat16; a laptop's tiny models are float32."""


class Qwen35(Qwen3VL):
    """The family; Qwen3.6 and 3.8 have its ``model_type``, too."""

    model_types = ("qwen3_5",)
    example = "Qwen/Qwen3.5-9B"
    preloaded = modules_of("qwen3_5")
    seams = (layout_seam("qwen3_5", get_vision_bilinear_indices_and_weights="73cd5334bab9"),)
    vllm_seams: ClassVar[tuple[Seam, ...]] = CPU_SEAMS
    activations = ActivationBytes(heads=20, block_hidden=20, block_intermediate=6, ends=11)
    """``heads`` isn't measured: what fla's kernels keep of a layer with linear attention, counted tensor by tensor."""

    def text_shape(self, config: Mapping[str, Any]) -> TextShape:
        text, shape = config["text_config"], super().text_shape(config)
        kinds, every = text.get("layer_types"), text.get("full_attention_interval", 4)
        linear = LinearShape(
            layers=kinds.count("linear_attention") if kinds else shape.layers - shape.layers // every,
            key_heads=text["linear_num_key_heads"],
            key_dim=text["linear_key_head_dim"],
            value_heads=text["linear_num_value_heads"],
            value_dim=text["linear_value_head_dim"],
            kernel=text["linear_conv_kernel_dim"],
        )
        return replace(shape, linear=linear)

    def layer_parameters(self, text: TextShape) -> int:
        return max(self._attention(text), self._linear_attention(text)) + self._rest(text)

    def decoder_parameters(self, text: TextShape) -> int:
        linear = text.layers - text.cached_layers
        each = text.cached_layers * self._attention(text) + linear * self._linear_attention(text)
        return each + text.layers * self._rest(text)

    def _attention(self, text: TextShape) -> int:
        """Parameters of an attention whose queries come with a gate."""
        queries, keys = text.heads * text.head_dim, text.kv_heads * text.head_dim
        return text.hidden * (3 * queries + 2 * keys) + 2 * text.head_dim

    def _linear_attention(self, text: TextShape) -> int:
        """Parameters of a gated delta net; its gate is as wide as its values."""
        linear = text.linear
        if linear is None:
            return 0
        projected = linear.convolved + 2 * linear.values + 2 * linear.value_heads
        extras = linear.kernel * linear.convolved + 2 * linear.value_heads + linear.value_dim
        return text.hidden * projected + extras

    def _rest(self, text: TextShape) -> int:
        """Parameters of a layer's MLP and norms."""
        return self.mlp_parameters(text) + 2 * text.hidden

    def mlp_parameters(self, text: TextShape) -> int:
        """Parameters of a layer's MLP."""
        return 3 * text.hidden * text.intermediate

    def mlp_ends(self, text: TextShape) -> int:
        """Inputs and outputs of a layer's MLP."""
        return 3 * (text.hidden + text.intermediate)

    def adapter_ends(self, text: TextShape) -> int:
        queries, keys, linear = text.heads * text.head_dim, text.kv_heads * text.head_dim, text.linear
        ends = text.cached_layers * (4 * text.hidden + 3 * queries + 2 * keys) + text.layers * self.mlp_ends(text)
        if linear is None:
            return ends
        outputs = linear.convolved + 2 * linear.values + 2 * linear.value_heads
        return ends + linear.layers * (5 * text.hidden + outputs)

    @cached_property
    def tiny(self) -> "TinyModels":
        from agentic_video.families.qwen_vl_tiny import TinyQwen35

        return TinyQwen35(self.timed_grids)
