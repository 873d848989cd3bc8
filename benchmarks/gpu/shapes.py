"""Checkpoints with the shapes of published models and random weights: nothing is downloaded.

Widths, heads and the vision tower are those of each model's ``config.json`` on its Hugging Face page; the number of
layers, and the vocabulary where logits don't matter, can be made smaller. The tokenizer is the toy world's: token ids
stand for nothing here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentic_video.families.registry import DEFAULT, FAMILY_OF, family_of
from agentic_video.toyworld.model import (
    ModelRecipe,
    build_model,
    build_tokenizer,
    save_checkpoint,
)

FRAME = (448, 224)
"""Width and height in pixels of the frames that are measured with."""
MAX_PIXELS = 768 * 768
WORDS = ("what happens in the video after the red square has gone and before the blue one comes back at 12.5 seconds",)


@dataclass(frozen=True)
class Shape:
    """The sizes of a published model."""

    family: str  # ``qwen2_5_vl`` or ``qwen3_vl``
    text: Mapping[str, Any]  # the language model's part of ``config.json``, without its vocabulary
    vision: Mapping[str, Any]  # the vision tower's part
    vocabulary: int  # rows of the embedding

    @property
    def layers(self) -> int:
        """Depth of the published language model."""
        return int(self.text["num_hidden_layers"])


SHAPES: Mapping[str, Shape] = {
    "qwen2.5-vl-7b": Shape(
        "qwen2_5_vl",
        text={
            "hidden_size": 3584,
            "intermediate_size": 18_944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "max_position_embeddings": 128_000,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
            "use_sliding_window": False,
        },
        vision={
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "hidden_act": "silu",
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
            "tokens_per_second": 2,
        },
        vocabulary=152_064,
    ),
    "qwen3-vl-8b": Shape(
        "qwen3_vl",
        text={
            "hidden_size": 4096,
            "intermediate_size": 12_288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 262_144,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e6,
                "mrope_section": [24, 20, 20],
                "mrope_interleaved": True,
            },
        },
        vision={
            "depth": 27,
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_heads": 16,
            "hidden_act": "gelu_pytorch_tanh",
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": [8, 16, 24],
        },
        vocabulary=151_936,
    ),
}
"""Published shapes by name; neither ties its output layer to the embedding."""
TINY = {"tiny" if name == DEFAULT else f"tiny-{name}": name for name in FAMILY_OF}
"""The toy world's models of all families, with a processor that leaves frames as they are where it can."""


def model_config(
    name: str, tokenizer: Any, *, layers: int | None = None, vision_layers: int | None = None, vocabulary: bool = True
) -> Any:
    """The Hugging Face config of a shape; depths default to the published ones, the vocabulary to the tokenizer's."""
    import transformers

    shape = SHAPES[name]
    tiny: Any = family_of(shape.family).tiny
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in tiny.special_tokens}
    text = {
        **shape.text,
        "vocab_size": shape.vocabulary if vocabulary else len(tokenizer),
        "num_hidden_layers": layers or shape.layers,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
    }
    depth = vision_layers or int(shape.vision["depth"])
    vision = {
        **shape.vision,
        "depth": depth,
        "out_hidden_size": shape.text["hidden_size"],
        "patch_size": tiny.patch_side,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
    }
    for key in ("fullatt_block_indexes", "deepstack_visual_indexes"):
        if key in vision:
            # A shallow tower has as many of these layers as fit, the last one among them.
            vision[key] = [layer for layer in vision[key] if layer < depth] or [depth - 1]
    config = getattr(transformers, tiny.classes[0])(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
        eos_token_id=ids["<|im_end|>"],
        pad_token_id=ids["<|endoftext|>"],
    )
    config.architectures = [tiny.classes[1]]
    return config


def write_checkpoint(
    folder: Path,  # where; its file ``done`` is written last
    name: str,  # of :data:`SHAPES` or :data:`TINY`
    *,
    layers: int | None = None,  # see :func:`model_config`
    vision_layers: int | None = None,  # see :func:`model_config`
    vocabulary: bool = True,  # see :func:`model_config`
    weights: bool = True,  # false: all but the weights, for vLLM's ``load_format=dummy``
    dtype: str = "bfloat16",  # of the written weights
    device: str = "cpu",  # where they are drawn
    # standard deviation of the logits; 0 leaves it as it comes out, which makes all tokens about as likely
    spread: float = 0.0,
    seed: int = 0,  # of the drawing
) -> Path:
    """Write a checkpoint of random weights, or take an existing one; its file ``done`` is written last."""
    import torch
    from transformers import AutoModelForImageTextToText

    if (folder / "done").is_file():
        return folder
    tokenizer = build_tokenizer(WORDS * 4)
    if name in TINY:
        family = TINY[name]
        model = build_model(tokenizer, ModelRecipe(family=family, layers=layers or 2, seed=seed))
        model.config.text_config.max_position_embeddings = SHAPES["qwen2.5-vl-7b"].text["max_position_embeddings"]
        save_checkpoint(spread_out(model, spread).to(getattr(torch, dtype)), tokenizer, folder)
    else:
        family = SHAPES[name].family
        config = model_config(name, tokenizer, layers=layers, vision_layers=vision_layers, vocabulary=vocabulary)
        config.dtype = getattr(torch, dtype)
        torch.manual_seed(seed)
        with torch.device(device if weights else "meta"):
            model = AutoModelForImageTextToText.from_config(config, dtype=getattr(torch, dtype))
        if weights:
            save_checkpoint(spread_out(model, spread), tokenizer, folder)
        else:
            _without_weights(model, tokenizer, folder)
    del model
    if device == "cuda":
        torch.cuda.empty_cache()
    _let_frames_be(folder, family)
    (folder / "done").write_text(name)
    return folder


def spread_out(model: Any, spread: float) -> Any:
    """Scale the output layer so that logits have a standard deviation; the hidden states before have 1."""
    import torch

    if spread:
        weight = model.get_output_embeddings().weight
        with torch.no_grad():
            weight.mul_(spread / (float(weight.float().std()) * weight.shape[1] ** 0.5))
    return model


def _without_weights(model: Any, tokenizer: Any, folder: Path) -> None:
    """A checkpoint of a model on the meta device: all but its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    family_of(model).tiny.write_tokenizer_files(folder)


def _let_frames_be(folder: Path, family: str) -> None:
    """Write processors that resize no frame of up to :data:`MAX_PIXELS`, where they have such a bound."""
    from transformers import AutoTokenizer

    processor = family_of(family).tiny.processor(AutoTokenizer.from_pretrained(folder))
    for part in (processor.image_processor, processor.video_processor):
        if getattr(getattr(part, "size", None), "longest_edge", None):
            part.size.longest_edge = max(part.size.longest_edge, MAX_PIXELS)
    processor.save_pretrained(folder)


def parameters(name: str, layers: int | None = None) -> dict[str, int]:
    """Parameters of a shape by part: ``embedding``, ``head``, ``layer`` (of one), ``vision``."""
    import torch
    from transformers import AutoModelForImageTextToText

    config = model_config(name, build_tokenizer(WORDS * 4), layers=layers or 2)
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config)
    counted = {"embedding": 0, "head": 0, "layer": 0, "vision": 0}
    for path, weights in model.named_parameters():
        parts = path.split(".")
        if "visual" in parts:
            counted["vision"] += weights.numel()
        elif "embed_tokens" in parts:
            counted["embedding"] += weights.numel()
        elif "lm_head" in parts:
            counted["head"] += weights.numel()
        elif "layers" in parts and parts[parts.index("layers") + 1] == "0":
            counted["layer"] += weights.numel()
    return counted
