"""Qwen3-VL with experts in place of each decoder layer's MLP, whose matrices published files have turned."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any

from agentic_video.families.qwen3_5_moe import LIVE_EXPERTS
from agentic_video.families.qwen3_vl import Qwen3VL
from agentic_video.families.qwen_vl import layout_seam, modules_of
from agentic_video.families.shapes import ExpertShape, TextShape
from agentic_video.utils.seam import Seam

if TYPE_CHECKING:
    import torch

    from agentic_video.families.tiny import TinyModels

SAVED_EXPERTS = Seam(
    "agentic_video.families.qwen3_vl_moe:saved_experts",
    "transformers.core_model_loading",
    {"transformers.core_model_loading:Transpose": "56d12dd3e9a4"},
    "saved checkpoints of Qwen3-VL-MoE have experts as transformers holds them, and no other engine does",
)
SYNCED_EXPERTS = Seam(
    "agentic_video.families.qwen3_vl_moe:synced_experts",
    "vllm.model_executor.models.qwen3_vl_moe",
    {"vllm.model_executor.models.qwen3_vl_moe:Qwen3MoeLLMModel.load_weights": "20173713ce26"},
    "a weight sync sends experts as transformers holds them, which vLLM takes for those of published files",
)


class Qwen3VLMoe(Qwen3VL):
    """The family."""

    model_types = ("qwen3_vl_moe",)
    example = "Qwen/Qwen3-VL-30B-A3B-Instruct"
    preloaded = modules_of("qwen3_vl_moe")
    seams = (layout_seam("qwen3_vl_moe", get_vision_bilinear_indices_and_weights="73cd5334bab9"), SAVED_EXPERTS)
    vllm_seams = (LIVE_EXPERTS, SYNCED_EXPERTS)

    def text_shape(self, config: Mapping[str, Any]) -> TextShape:
        text = config["text_config"]
        count = text["num_experts"] if "num_experts" in text else text["num_local_experts"]
        experts = ExpertShape(count, text["num_experts_per_tok"], text["moe_intermediate_size"], shared=0)
        used = experts.active * experts.width
        shape = super().text_shape({**config, "text_config": {**text, "intermediate_size": used}})
        return replace(shape, experts=experts)

    def layer_parameters(self, text: TextShape) -> int:
        experts = text.experts
        if experts is None:
            return super().layer_parameters(text)
        mlp = text.hidden * experts.count * (3 * experts.width + 1)  # with the router
        return super().layer_parameters(replace(text, intermediate=0)) + mlp

    def adapter_ends(self, text: TextShape) -> int:
        """See the base; PEFT adapts no expert."""
        return super().adapter_ends(text) - 3 * text.layers * (text.hidden + text.intermediate)

    @cached_property
    def tiny(self) -> "TinyModels":
        from transformers import core_model_loading

        from agentic_video.families.qwen_vl_tiny import TinyQwen3VLMoe

        saved_experts(core_model_loading)  # tiny models are saved outside verl's processes, too
        return TinyQwen3VLMoe(self.timed_grids)


def saved_experts(core_model_loading: ModuleType) -> None:
    """Have transformers turn experts' matrices when it saves them: it compares shapes with its own, which are equal."""
    transpose = core_model_loading.Transpose

    def reverse_op(self: Any) -> Any:
        return transpose(dim0=self.dim1, dim1=self.dim0)

    transpose.reverse_op = property(reverse_op)


def synced_experts(qwen3_vl_moe: ModuleType) -> None:
    """Have vLLM load experts' matrices either way, by their shapes."""
    original = qwen3_vl_moe.Qwen3MoeLLMModel.load_weights

    @wraps(original)
    def load_weights(self: Any, weights: "Iterable[tuple[str, torch.Tensor]]") -> Any:
        return original(self, published_experts(weights, self.config.hidden_size, self.config.moe_intermediate_size))

    qwen3_vl_moe.Qwen3MoeLLMModel.load_weights = load_weights


def published_experts(
    weights: "Iterable[tuple[str, torch.Tensor]]", hidden: int, width: int
) -> "Iterator[tuple[str, torch.Tensor]]":
    """Weights with experts' matrices as published files have them: inputs before outputs."""
    own = {"experts.gate_up_proj": (2 * width, hidden), "experts.down_proj": (hidden, width)}
    for name, weight in weights:
        kind = next((kind for kind in own if name.endswith(kind)), "")
        turned = kind and tuple(weight.shape[-2:]) == own[kind] and hidden not in (width, 2 * width)
        yield name, weight.transpose(-1, -2) if turned else weight
