"""transformers' own models in given shapes."""

from dataclasses import replace
from math import isqrt
from typing import Any

import torch
from transformers import (
    Glm4vConfig,
    Glm4vForConditionalGeneration,
    InternVLConfig,
    InternVLForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
)

from agentic_video.families.registry import family_of
from agentic_video.families.shapes import ExpertShape, LinearShape, TextShape, VisionShape
from agentic_video.planning.shapes import ModelShape

TINY = {
    "qwen2_vl": ModelShape(
        "qwen2_vl",
        TextShape(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, intermediate=96, vocab=2048, tied=False),
        VisionShape(depth=2, hidden=32, heads=2, intermediate=64, patch=14),
    ),
    "qwen2_5_vl": ModelShape(
        "qwen2_5_vl",
        TextShape(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, intermediate=96, vocab=2048, tied=False),
        VisionShape(depth=2, hidden=32, heads=2, intermediate=48, patch=14),
    ),
    "qwen3_vl": ModelShape(
        "qwen3_vl",
        TextShape(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=32, intermediate=96, vocab=2048, tied=False),
        VisionShape(depth=2, hidden=32, heads=2, intermediate=48, patch=16, deepstack=1, positions=2304),
    ),
    # a block's MLP is as wide as the language model
    "glm4v": ModelShape(
        "glm4v",
        TextShape(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, intermediate=96, vocab=2048, tied=False),
        VisionShape(depth=2, hidden=32, heads=2, intermediate=64, patch=14, positions=144, merger=80),
    ),
    "internvl": ModelShape(
        "internvl",
        TextShape(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=32, intermediate=96, vocab=2048, tied=False),
        VisionShape(depth=2, hidden=32, heads=2, intermediate=48, patch=14, temporal=1, positions=65),
    ),
}
"""Small shapes whose sides all differ, so that a formula can't be right by accident."""
HYBRID = {
    "qwen3_5": ModelShape(
        "qwen3_5",
        TextShape(
            hidden=64,
            layers=4,
            heads=4,
            kv_heads=2,
            head_dim=32,
            intermediate=96,
            vocab=2048,
            tied=False,
            linear=LinearShape(layers=3, key_heads=2, key_dim=16, value_heads=6, value_dim=24, kernel=4),
        ),
        VisionShape(depth=2, hidden=32, heads=2, intermediate=48, patch=16, positions=2304),
    ),
}
HYBRID["qwen3_5_moe"] = replace(
    HYBRID["qwen3_5"],
    family="qwen3_5_moe",
    text=replace(
        HYBRID["qwen3_5"].text, experts=ExpertShape(count=6, active=2, width=40, shared=56), intermediate=2 * 40 + 56
    ),
)
HYBRID["qwen3_vl_moe"] = replace(
    TINY["qwen3_vl"],
    family="qwen3_vl_moe",
    text=replace(
        TINY["qwen3_vl"].text, experts=ExpertShape(count=6, active=2, width=40, shared=0), intermediate=2 * 40
    ),
)
"""The same with linear attention in some decoder layers, or with experts."""


def config_of(shape: ModelShape) -> Any:
    if shape.family == "internvl":
        return _internvl_config(shape)
    text, vision = shape.text, shape.vision
    rope = {"rope_type": "default", "mrope_section": [text.head_dim // 8, text.head_dim // 8, text.head_dim // 4]}
    texts = {
        "hidden_size": text.hidden,
        "num_hidden_layers": text.layers,
        "num_attention_heads": text.heads,
        "num_key_value_heads": text.kv_heads,
        "intermediate_size": text.intermediate,
        "vocab_size": text.vocab,
        "tie_word_embeddings": text.tied,
        "rope_scaling": rope,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    visions = {
        "depth": vision.depth,
        "hidden_size": vision.hidden,
        "num_heads": vision.heads,
        "intermediate_size": vision.intermediate,
        "patch_size": vision.patch,
        "out_hidden_size": text.hidden,
    }
    ids = {"image_token_id": 5, "video_token_id": 6, "vision_start_token_id": 7, "tie_word_embeddings": text.tied}
    if shape.family == "qwen2_vl":
        more = {
            "embed_dim": vision.hidden,
            "hidden_size": text.hidden,
            "mlp_ratio": vision.intermediate // vision.hidden,
        }
        return Qwen2VLConfig(text_config=texts, vision_config={**visions, **more}, **ids)
    if shape.family == "qwen2_5_vl":
        return Qwen2_5_VLConfig(text_config=texts, vision_config={**visions, "fullatt_block_indexes": [0]}, **ids)
    if shape.family == "glm4v":
        del texts["rope_scaling"], ids["vision_start_token_id"]
        turned = {"rope_type": "default", "mrope_section": [text.head_dim // 8, 0, text.head_dim // 8]}
        texts |= {"rope_parameters": {**turned, "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}}
        visions |= {"out_hidden_size": vision.intermediate, "intermediate_size": vision.merger}
        visions["image_size"] = isqrt(vision.positions) * vision.patch
        return Glm4vConfig(text_config=texts, vision_config=visions, **ids)
    texts["head_dim"] = text.head_dim
    if text.linear:
        texts |= {
            "linear_num_key_heads": text.linear.key_heads,
            "linear_key_head_dim": text.linear.key_dim,
            "linear_num_value_heads": text.linear.value_heads,
            "linear_value_head_dim": text.linear.value_dim,
            "linear_conv_kernel_dim": text.linear.kernel,
        }
        visions["num_position_embeddings"] = vision.positions
        if experts := text.experts:
            texts |= {
                "num_experts": experts.count,
                "num_experts_per_tok": experts.active,
                "moe_intermediate_size": experts.width,
                "shared_expert_intermediate_size": experts.shared,
            }
            del texts["intermediate_size"]
            return Qwen3_5MoeConfig(text_config=texts, vision_config=visions, **ids)
        return Qwen3_5Config(text_config=texts, vision_config=visions, **ids)
    visions["deepstack_visual_indexes"] = list(range(vision.deepstack))
    visions["num_position_embeddings"] = vision.positions
    if experts := text.experts:
        del texts["intermediate_size"]
        texts |= {"num_experts": experts.count, "num_experts_per_tok": experts.active}
        texts["moe_intermediate_size"] = experts.width
        return Qwen3VLMoeConfig(text_config=texts, vision_config=visions, **ids)
    return Qwen3VLConfig(text_config=texts, vision_config=visions, **ids)


def _internvl_config(shape: ModelShape) -> Any:
    text, vision = shape.text, shape.vision
    side = vision.patch * isqrt(vision.positions - 1)
    texts = {
        "model_type": "qwen3",
        "hidden_size": text.hidden,
        "num_hidden_layers": text.layers,
        "num_attention_heads": text.heads,
        "num_key_value_heads": text.kv_heads,
        "head_dim": text.head_dim,
        "intermediate_size": text.intermediate,
        "vocab_size": text.vocab,
        "tie_word_embeddings": text.tied,
    }
    visions = {
        "hidden_size": vision.hidden,
        "num_hidden_layers": vision.depth,
        "num_attention_heads": vision.heads,
        "intermediate_size": vision.intermediate,
        "attention_bias": True,
        "image_size": [side, side],
        "patch_size": [vision.patch, vision.patch],
    }
    return InternVLConfig(text_config=texts, vision_config=visions, image_token_id=5, tie_word_embeddings=text.tied)


def model_of(shape: ModelShape, device: str = "cpu", attention: str = "sdpa") -> Any:
    """A shape as transformers' model, with random weights in float32."""
    kinds = {
        "qwen2_vl": Qwen2VLForConditionalGeneration,
        "qwen2_5_vl": Qwen2_5_VLForConditionalGeneration,
        "qwen3_vl": Qwen3VLForConditionalGeneration,
        "glm4v": Glm4vForConditionalGeneration,
        "qwen3_5": Qwen3_5ForConditionalGeneration,
        "qwen3_5_moe": Qwen3_5MoeForConditionalGeneration,
        "qwen3_vl_moe": Qwen3VLMoeForConditionalGeneration,
        "internvl": InternVLForConditionalGeneration,
    }
    with torch.device(device):
        return kinds[shape.family]._from_config(config_of(shape), attn_implementation=attention)


def tower_parts(model: Any) -> list[Any]:
    """The vision tower, and what makes tokens of its patches where that stands beside it."""
    family = family_of(model)
    return [part for name, part in model.model.named_children() if name in (family.tower, family.merger)]


def first_block(model: Any) -> Any:
    """The first block of the vision tower."""
    name = family_of(model).tower_layer
    return model.get_submodule(name[: name.index(".0.") + 2])


def positions_of(shape: ModelShape, tokens: int) -> torch.Tensor:
    """Positions of a text as the decoder takes them."""
    places = torch.arange(tokens)[None]
    return places if family_of(shape.family).tiny.axes == 1 else places.expand(4, 1, tokens)


def features_of(model: Any, shape: ModelShape, patches: int) -> tuple[Any, torch.Tensor]:
    """The tower's output for random pictures of 8 x 8 patches, and these, in bfloat16 as from the trainer."""
    vision, count = shape.vision, patches // 64
    if shape.family == "internvl":
        pixels = torch.randn(count, 3, 8 * vision.patch, 8 * vision.patch).bfloat16()
        return model.model.get_image_features(pixels), pixels
    pixels = torch.randn(patches, vision.patch_values).bfloat16()
    return model.model.visual(pixels, grid_thw=torch.tensor([[1, 8, 8]] * count)), pixels
