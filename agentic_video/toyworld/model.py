"""A tiny Qwen2.5-VL and its tokenizer: the real classes, small enough to learn on two cores.

The checkpoint loads as it is in transformers, vLLM and verl. Every frame is 28x28 pixels, one visual token; the fast
paths below (:func:`embed`, :func:`positions`) rely on that and equal the stock forward pass.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
)
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import apply_rotary_pos_emb_vision
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
TAGS = tuple(
    f"<{slash}{name}>"
    for name in ("think", "answer", "video_zoom", "tool_response", "tool_call")
    for slash in ("", "/")
)

FRAME_SIDE = 28
"""Side in pixels of every frame that the model sees: one visual token."""

PATCH_SIDE, MERGE, TEMPORAL_PATCH = 14, 2, 2
_PATCHES = (FRAME_SIDE // PATCH_SIDE) ** 2

# How Qwen2.5's tokenizer cuts text before merging: words with one leading character, digits one by one.
_WORD_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type in ('image', 'image_url') -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- elif part.type == 'video' -%}
{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
{%- else -%}
{{- part.text -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""


@dataclass(frozen=True)
class ModelRecipe:
    """Sizes of the tiny model.

    Attributes:
        hidden: Width of the language model.
        layers: Its depth.
        heads: Its attention heads; hidden / heads must be a head size that vLLM's CPU kernels have (32, 64 ...).
        vision_hidden: Width of the vision tower (depth 1).
        vision_heads: Its attention heads.
        seed: Seed of the initial weights.
    """

    hidden: int = 64
    layers: int = 2
    heads: int = 2
    vision_hidden: int = 32
    vision_heads: int = 2
    seed: int = 0


def build_tokenizer(corpus: Iterable[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE with Qwen2.5's pre-tokenisation, merges learnt from a corpus; tags are tokens of their own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORD_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    cut = re.compile("|".join(re.escape(token) for token in SPECIAL_TOKENS + TAGS))
    trainer = trainers.BpeTrainer(
        vocab_size=1024, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[], show_progress=False
    )
    tokenizer.train_from_iterator((piece for text in corpus for piece in cut.split(text)), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=[token for token in SPECIAL_TOKENS if token not in ("<|endoftext|>", "<|im_end|>")],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )


def build_model(tokenizer: Any, recipe: ModelRecipe) -> Qwen2_5_VLForConditionalGeneration:
    """A model with random weights, float32, its vocabulary exactly the tokenizer's."""
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    half = recipe.hidden // recipe.heads // 2
    spatial = 3 * half // 8
    shared = {"hidden_act": "silu", "initializer_range": 0.02}
    text = {
        **shared,
        "vocab_size": len(tokenizer),
        "hidden_size": recipe.hidden,
        "intermediate_size": 2 * recipe.hidden,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": recipe.heads,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "mrope_section": [half - 2 * spatial, spatial, spatial],
        },
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
    }
    vision = {
        **shared,
        "depth": 1,
        "hidden_size": recipe.vision_hidden,
        "intermediate_size": 2 * recipe.vision_hidden,
        "num_heads": recipe.vision_heads,
        "in_channels": 3,
        "patch_size": PATCH_SIDE,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": TEMPORAL_PATCH,
        "window_size": 112,
        "fullatt_block_indexes": [0],
        "out_hidden_size": recipe.hidden,
        "tokens_per_second": 2,
    }
    fields: dict[str, Any] = {
        "text_config": text,
        "vision_config": vision,
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
        "tie_word_embeddings": False,
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
    }
    config = Qwen2_5_VLConfig(**fields)
    config.architectures = ["Qwen2_5_VLForConditionalGeneration"]
    config._attn_implementation = "sdpa"
    torch.manual_seed(recipe.seed)
    model = Qwen2_5_VLForConditionalGeneration(config).float()
    model.generation_config.eos_token_id = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    model.generation_config.pad_token_id = ids["<|endoftext|>"]
    return model


def image_processor() -> Qwen2VLImageProcessor:
    """The processor that brings every picture to one visual token."""
    return Qwen2VLImageProcessor(**_PROCESSOR)


_PROCESSOR = {
    "min_pixels": FRAME_SIDE**2,
    "max_pixels": FRAME_SIDE**2,
    "patch_size": PATCH_SIDE,
    "temporal_patch_size": TEMPORAL_PATCH,
    "merge_size": MERGE,
}


def save_checkpoint(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a Hugging Face checkpoint: weights, tokenizer, chat template and processors.

    Raises:
        RuntimeError: The saved tokenizer doesn't read texts as the given one does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # Qwen2Tokenizer, which everybody expects beside Qwen2.5-VL, also wants the two classic files.
    bpe = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(bpe["vocab"], ensure_ascii=False))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in bpe["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    config_file = folder / "tokenizer_config.json"
    config = json.loads(config_file.read_text()) | {"tokenizer_class": "Qwen2Tokenizer"}
    config_file.write_text(json.dumps(config, indent=2, ensure_ascii=False))

    reloaded = AutoTokenizer.from_pretrained(folder)
    sample = "<|im_start|>user\n<frame3_time12.50s>What colour?\nA. red<|im_end|>\n<think>it is é, 42</think>"
    if len(reloaded) != len(tokenizer) or reloaded(sample)["input_ids"] != tokenizer(sample)["input_ids"]:
        raise RuntimeError("the saved tokenizer differs from the one that was trained with")
    Qwen2_5_VLProcessor(
        image_processor=image_processor(),
        tokenizer=reloaded,
        video_processor=Qwen2VLVideoProcessor(**_PROCESSOR),
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)


def load_checkpoint(folder: Path) -> tuple[Qwen2_5_VLForConditionalGeneration, Any]:
    """The model (float32) and the tokenizer of a folder."""
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    return model, AutoTokenizer.from_pretrained(folder)


def patches(images: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
    """What the image processor makes of frames.

    Args:
        images: RGB pictures of shape (28, 28, 3).

    Returns:
        Normalised patches, shape (len(images), 4, 3 * 2 * 14 * 14): the picture stands for two moments.

    Raises:
        ValueError: A picture has another size.
    """
    if any(image.shape != (FRAME_SIDE, FRAME_SIDE, 3) for image in images):
        raise ValueError(f"every frame must be {FRAME_SIDE}x{FRAME_SIDE}, got {images[0].shape}")
    processor = image_processor()
    pixels = np.asarray(images, dtype=np.float32) / 255
    pixels = (pixels - np.asarray(processor.image_mean, np.float32)) / np.asarray(processor.image_std, np.float32)
    grid = FRAME_SIDE // PATCH_SIDE
    cells = pixels.reshape(-1, grid, PATCH_SIDE, grid, PATCH_SIDE, 3).transpose(0, 1, 3, 5, 2, 4)
    cells = cells.reshape(-1, _PATCHES, 3, 1, PATCH_SIDE**2)
    return np.ascontiguousarray(
        cells.repeat(TEMPORAL_PATCH, 3).reshape(-1, _PATCHES, 3 * TEMPORAL_PATCH * PATCH_SIDE**2)
    )


def _encode_images(model: Any, pixels: torch.Tensor) -> torch.Tensor:
    """Visual tokens of frames, as ``model.visual`` gives them.

    The stock code attends image by image in a loop; with hundreds of one-token images, one batched call is many times
    as fast.

    Args:
        pixels: Patches of shape (images, 4, 1176).

    Returns:
        Shape (images, hidden).
    """
    tower = model.model.visual
    count = len(pixels)
    rows = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], device=pixels.device)
    angles = tower.rotary_pos_emb(rows).reshape(_PATCHES, -1)
    angles = torch.cat((angles, angles), -1).repeat(count, 1)
    weight = tower.patch_embed.proj.weight
    hidden = F.linear(pixels.reshape(count * _PATCHES, -1), weight.reshape(len(weight), -1))
    for block in tower.blocks:
        attention = block.attn
        query, key, value = (
            attention.qkv(block.norm1(hidden)).reshape(count * _PATCHES, 3, attention.num_heads, -1).unbind(1)
        )
        query, key = apply_rotary_pos_emb_vision(query, key, angles.cos(), angles.sin())
        query, key, value = (
            part.reshape(count, _PATCHES, attention.num_heads, -1).transpose(1, 2) for part in (query, key, value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, scale=attention.scaling)
        hidden = hidden + attention.proj(mixed.transpose(1, 2).reshape(count * _PATCHES, -1))
        hidden = hidden + block.mlp(block.norm2(hidden))
    merged: torch.Tensor = tower.merger(hidden)
    return merged


def embed(model: Any, ids: torch.Tensor, pixels: torch.Tensor | None) -> torch.Tensor:
    """Input embeddings of token ids with their frames put in place of the placeholders.

    Args:
        ids: Shape (batch, length).
        pixels: Patches of all frames in the order of their placeholders, shape (images, 4, 1176); None without any.

    Returns:
        Shape (batch, length, hidden).
    """
    embedded: torch.Tensor = model.model.language_model.embed_tokens(ids)
    if pixels is None:
        return embedded
    placeholders = (ids == model.config.image_token_id).unsqueeze(-1)
    return embedded.masked_scatter(placeholders, _encode_images(model, pixels))


def positions(mask: torch.Tensor) -> torch.Tensor:
    """M-RoPE positions: with one token an image the three axes all count tokens.

    Args:
        mask: 1 for real tokens, 0 for padding on the left, shape (batch, length).

    Returns:
        Shape (3, batch, length).
    """
    return (mask.cumsum(1) - 1).clamp(min=0)[None].expand(3, -1, -1)


def logits_at(model: Any, ids: torch.Tensor, pixels: torch.Tensor | None, wanted: torch.Tensor) -> torch.Tensor:
    """Next-token logits at chosen places of right-padded sequences.

    Args:
        ids: Shape (batch, length).
        pixels: See :func:`embed`.
        wanted: Where to read the logits, bool, shape (batch, length).

    Returns:
        Shape (number of places, vocabulary), places in row-major order.
    """
    output = model.model.language_model(
        inputs_embeds=embed(model, ids, pixels),
        position_ids=positions(torch.ones_like(ids)),
        attention_mask=None,
        use_cache=False,
    )
    logits: torch.Tensor = model.lm_head(output.last_hidden_state[wanted])
    return logits
