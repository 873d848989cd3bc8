"""A tiny Qwen2.5-VL or Qwen3-VL and its tokenizer: the real classes, small enough to learn on two cores.

The checkpoint loads as it is in transformers, vLLM and verl. A frame of :attr:`Family.frame_side` is one visual token,
larger ones are several; the fast paths below (:func:`embed`, :func:`logits_at`) equal the stock forward pass.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
)
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import apply_rotary_pos_emb_vision
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.vision_utils import get_vision_bilinear_indices_and_weights, get_vision_position_ids

FamilyName = Literal["qwen2_5_vl", "qwen3_vl"]

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
    for name in ("think", "thinking", "answer", "action", "video_zoom", "tool_response", "tool_call", "turn_sum")
    for slash in ("", "/")
)

MERGE, TEMPORAL_PATCH = 2, 2


@dataclass(frozen=True)
class Family:
    """What tells the two families of models apart for a picture.

    Attributes:
        patch_side: Side of a patch in pixels.
        mean: Of a channel, for normalising pixels from 0 to 1.
        std: Likewise.
    """

    patch_side: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def frame_side(self) -> int:
        """Side in pixels of a frame of one visual token."""
        return self.patch_side * MERGE

    @property
    def processor(self) -> dict[str, Any]:
        """Arguments of the image processor: frames of one to four tokens stay as large as they are."""
        return {
            "min_pixels": self.frame_side**2,
            "max_pixels": (2 * self.frame_side) ** 2,
            "patch_size": self.patch_side,
            "temporal_patch_size": TEMPORAL_PATCH,
            "merge_size": MERGE,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
        }


_OPENAI_CLIP = Qwen2VLImageProcessor()
FAMILIES: dict[FamilyName, Family] = {
    "qwen2_5_vl": Family(14, tuple(_OPENAI_CLIP.image_mean), tuple(_OPENAI_CLIP.image_std)),
    "qwen3_vl": Family(16, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}

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
        family: Which of the two families it belongs to.
        hidden: Width of the language model.
        layers: Its depth.
        heads: Its attention heads; hidden / heads must be a head size that vLLM's CPU kernels have (32, 64 ...).
        vision_hidden: Width of the vision tower (depth 1; for Qwen3-VL 2, the first of which feeds DeepStack).
        vision_heads: Its attention heads.
        seed: Seed of the initial weights.
    """

    family: FamilyName = "qwen2_5_vl"
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


def build_model(tokenizer: Any, recipe: ModelRecipe) -> Any:
    """A model with random weights, float32, its vocabulary exactly the tokenizer's."""
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    family = FAMILIES[recipe.family]
    half = recipe.hidden // recipe.heads // 2
    spatial = 3 * half // 8 if recipe.family == "qwen2_5_vl" else half // 3
    shared = {"initializer_range": 0.02}
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": 10_000.0,
        "mrope_section": [half - 2 * spatial, spatial, spatial],
    }
    text: dict[str, Any] = {
        **shared,
        "hidden_act": "silu",
        "vocab_size": len(tokenizer),
        "hidden_size": recipe.hidden,
        "intermediate_size": 2 * recipe.hidden,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": recipe.heads,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "rope_parameters": rope,
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
    }
    vision: dict[str, Any] = {
        **shared,
        "hidden_size": recipe.vision_hidden,
        "intermediate_size": 2 * recipe.vision_hidden,
        "num_heads": recipe.vision_heads,
        "in_channels": 3,
        "patch_size": family.patch_side,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": TEMPORAL_PATCH,
        "out_hidden_size": recipe.hidden,
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
    config: Any
    model: Any
    torch.manual_seed(recipe.seed)
    if recipe.family == "qwen2_5_vl":
        text["use_sliding_window"] = False
        vision |= {"depth": 1, "hidden_act": "silu", "window_size": 112, "fullatt_block_indexes": [0]}
        vision |= {"tokens_per_second": 2}
        config = Qwen2_5_VLConfig(**fields)
        config.architectures = ["Qwen2_5_VLForConditionalGeneration"]
        config._attn_implementation = "sdpa"
        model = Qwen2_5_VLForConditionalGeneration(config).float()
    else:
        rope["mrope_interleaved"] = True
        text["head_dim"] = 2 * half
        vision |= {"depth": 2, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
        config = Qwen3VLConfig(**fields)
        config.architectures = ["Qwen3VLForConditionalGeneration"]
        config._attn_implementation = "sdpa"
        model = Qwen3VLForConditionalGeneration(config).float()
    model.generation_config.eos_token_id = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    model.generation_config.pad_token_id = ids["<|endoftext|>"]
    return model


def family_of(model: Any) -> FamilyName:
    """The family that a model belongs to."""
    name: FamilyName = model.config.model_type
    return name


def image_processor(family: FamilyName = "qwen2_5_vl") -> Qwen2VLImageProcessor:
    """The processor of a family's tiny model."""
    return Qwen2VLImageProcessor(**FAMILIES[family].processor)


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
    family = FAMILIES[family_of(model)]
    processor, video_processor = (
        (Qwen2_5_VLProcessor, Qwen2VLVideoProcessor)
        if family_of(model) == "qwen2_5_vl"
        else (Qwen3VLProcessor, Qwen3VLVideoProcessor)
    )
    processor(
        image_processor=image_processor(family_of(model)),
        tokenizer=reloaded,
        video_processor=video_processor(**family.processor),
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)


def load_checkpoint(folder: Path) -> tuple[Any, Any]:
    """The model (float32) and the tokenizer of a folder."""
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    return model, AutoTokenizer.from_pretrained(folder)


Images = Sequence[npt.NDArray[np.uint8]]
"""RGB pictures, each of shape (height, width, 3), sides multiples of the family's ``frame_side``."""


def patches(images: Images, family: FamilyName = "qwen2_5_vl") -> npt.NDArray[np.float32]:
    """What the image processor makes of frames of one size.

    Args:
        images: Pictures of the same size.

    Returns:
        Normalised patches, shape (len(images), patches, 3 * 2 * patch_side**2): the picture stands for two moments; the
        patches of one visual token lie together.

    Raises:
        ValueError: The sizes differ, or aren't whole visual tokens.
    """
    traits = FAMILIES[family]
    height, width = images[0].shape[:2]
    if (
        any(image.shape != (height, width, 3) for image in images)
        or height % traits.frame_side
        or (width % traits.frame_side)
    ):
        raise ValueError(f"frames must be of one size, in multiples of {traits.frame_side}, got {images[0].shape}")
    side = traits.patch_side
    pixels = np.asarray(images, dtype=np.float32) / 255
    pixels = (pixels - np.asarray(traits.mean, np.float32)) / np.asarray(traits.std, np.float32)
    rows, columns = height // traits.frame_side, width // traits.frame_side
    cells = pixels.reshape(-1, rows, MERGE, side, columns, MERGE, side, 3).transpose(0, 1, 4, 2, 5, 7, 3, 6)
    cells = cells.reshape(len(images), -1, 3, 1, side**2)
    return np.ascontiguousarray(cells.repeat(TEMPORAL_PATCH, 3).reshape(len(images), -1, 3 * TEMPORAL_PATCH * side**2))


@dataclass(frozen=True)
class VisualTokens:
    """Visual tokens of frames.

    Attributes:
        features: Shape (tokens, hidden).
        deepstack: The same for each language layer that DeepStack adds to; empty for Qwen2.5-VL.
    """

    features: torch.Tensor
    deepstack: tuple[torch.Tensor, ...] = ()


def encode(model: Any, images: Images) -> VisualTokens:
    """Visual tokens of frames, in order, as ``model.visual`` gives them.

    The stock code attends image by image in a loop; with hundreds of tiny images, one batched call for each size is
    many times as fast.
    """
    by_size: dict[tuple[int, ...], list[int]] = {}
    for number, image in enumerate(images):
        by_size.setdefault(image.shape, []).append(number)
    pieces: list[tuple[torch.Tensor, ...]] = [()] * len(images)
    for numbers in by_size.values():
        streams = _encode_equal(model, [images[number] for number in numbers])
        for place, number in enumerate(numbers):
            pieces[number] = tuple(stream[place] for stream in streams)
    features, *deepstack = (torch.cat(stream) for stream in zip(*pieces, strict=True))
    return VisualTokens(features, tuple(deepstack))


def _encode_equal(model: Any, images: Images) -> list[torch.Tensor]:
    """Features, then DeepStack's, of frames of one size; each of shape (images, tokens, hidden)."""
    tower, family = model.model.visual, family_of(model)
    pixels = torch.from_numpy(patches(images, family))
    count, size = pixels.shape[:2]
    side = FAMILIES[family].patch_side
    grid = torch.tensor([[1, images[0].shape[0] // side, images[0].shape[1] // side]])
    angles = tower.rotary_pos_emb(get_vision_position_ids(grid, MERGE)).reshape(size, -1)
    angles = torch.cat((angles, angles), -1).repeat(count, 1)
    weight = tower.patch_embed.proj.weight
    hidden = F.linear(pixels.reshape(count * size, -1), weight.reshape(len(weight), -1), tower.patch_embed.proj.bias)
    if family == "qwen3_vl":
        indices, weights = get_vision_bilinear_indices_and_weights(
            grid, num_grid_per_side=tower.num_grid_per_side, spatial_merge_size=MERGE
        )
        hidden = hidden + (tower.pos_embed(indices) * weights[:, :, None]).sum(0).repeat(count, 1)
    deepstack = []
    for number, block in enumerate(tower.blocks):
        attention = block.attn
        query, key, value = (
            attention.qkv(block.norm1(hidden)).reshape(count * size, 3, attention.num_heads, -1).unbind(1)
        )
        query, key = apply_rotary_pos_emb_vision(query, key, angles.cos(), angles.sin())
        query, key, value = (
            part.reshape(count, size, attention.num_heads, -1).transpose(1, 2) for part in (query, key, value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, scale=attention.scaling)
        hidden = hidden + attention.proj(mixed.transpose(1, 2).reshape(count * size, -1))
        hidden = hidden + block.mlp(block.norm2(hidden))
        if family == "qwen3_vl" and number in tower.deepstack_visual_indexes:
            merger = tower.deepstack_merger_list[list(tower.deepstack_visual_indexes).index(number)]
            deepstack.append(merger(hidden))
    return [stream.reshape(count, size // MERGE**2, -1) for stream in (tower.merger(hidden), *deepstack)]


def embed(model: Any, ids: torch.Tensor, images: Images) -> dict[str, Any]:
    """Inputs of the language model for token ids with their frames put in place of the placeholders.

    Args:
        ids: Shape (batch, length).
        images: All frames in the order of their placeholders.

    Returns:
        ``inputs_embeds`` of shape (batch, length, hidden) and, for Qwen3-VL, what DeepStack adds.
    """
    embedded: torch.Tensor = model.model.language_model.embed_tokens(ids)
    if not len(images):
        return {"inputs_embeds": embedded}
    tokens = encode(model, images)
    placeholders = ids == model.config.image_token_id
    inputs: dict[str, Any] = {"inputs_embeds": embedded.masked_scatter(placeholders.unsqueeze(-1), tokens.features)}
    if tokens.deepstack:
        inputs |= {"visual_pos_masks": placeholders, "deepstack_visual_embeds": list(tokens.deepstack)}
    return inputs


def positions(model: Any, ids: Sequence[int], images: Images) -> torch.Tensor:
    """M-RoPE positions of one sequence, shape (3, length)."""
    side = FAMILIES[family_of(model)].patch_side
    if all(image.shape[0] == image.shape[1] == MERGE * side for image in images):
        # With one token an image the three axes all count tokens.
        return torch.arange(len(ids))[None].expand(3, -1)
    row = torch.tensor([list(ids)])
    grids = torch.tensor([[1, image.shape[0] // side, image.shape[1] // side] for image in images])
    kinds = (row == model.config.image_token_id).int()
    found: torch.Tensor = model.model.get_rope_index(row, mm_token_type_ids=kinds, image_grid_thw=grids)[0][:, 0]
    return found


def logits_at(
    model: Any, ids: torch.Tensor, images: Images, places: torch.Tensor, wanted: torch.Tensor
) -> torch.Tensor:
    """Next-token logits at chosen places of right-padded sequences.

    Args:
        ids: Shape (batch, length).
        images: All frames in the order of their placeholders.
        places: M-RoPE positions (see :func:`positions`), shape (3, batch, length).
        wanted: Where to read the logits, bool, shape (batch, length).

    Returns:
        Shape (number of places, vocabulary), places in row-major order.
    """
    output = model.model.language_model(
        **embed(model, ids, images), position_ids=places, attention_mask=None, use_cache=False
    )
    logits: torch.Tensor = model.lm_head(output.last_hidden_state[wanted])
    return logits
