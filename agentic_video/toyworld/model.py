"""A tiny Qwen2.5-VL or Qwen3-VL and its tokenizer: the real classes, small enough to learn on two cores.

The checkpoint loads in transformers, vLLM and verl. A frame of :attr:`Family.frame_side` is one visual token."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import NonNegativeInt, PositiveInt
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
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
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

from agentic_video.rollout.tokens import ChatFormat

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
"""Tags of the systems' grammars; a system whose oracle names more has its own tokenizer."""

MERGE, TEMPORAL_PATCH = 2, 2
"""Patches along a side of a visual token, and moments per patch."""
MAX_CLIP_FRAMES = 768


@dataclass(frozen=True)
class Family:
    """Picture traits of a model family.

    Attributes:
        patch_side: Side of a patch in pixels.
        mean: Channel means for normalising pixels from 0 to 1.
        std: Channel deviations.
        timestamps: Clips carry their times as text, and the size of all frames together is bounded.
    """

    patch_side: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    timestamps: bool = False

    @property
    def frame_side(self) -> int:
        """Side in pixels of a frame of one visual token."""
        return self.patch_side * MERGE

    @property
    def processor(self) -> dict[str, Any]:
        """Arguments of the image processor; frames of one to four tokens keep their size."""
        return {
            "min_pixels": self.frame_side**2,
            "max_pixels": (2 * self.frame_side) ** 2,
            "patch_size": self.patch_side,
            "temporal_patch_size": TEMPORAL_PATCH,
            "merge_size": MERGE,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
        }

    @property
    def video_processor(self) -> dict[str, Any]:
        """Arguments of the video processor; frames keep their size."""
        shared = {name: value for name, value in self.processor.items() if not name.endswith("_pixels")}
        least, most = self.frame_side**2, (2 * self.frame_side) ** 2
        if self.timestamps:
            least, most = TEMPORAL_PATCH * least, MAX_CLIP_FRAMES * most
        return {**shared, "size": {"shortest_edge": least, "longest_edge": most}}


_OPENAI_CLIP = Qwen2VLImageProcessor()

FAMILIES: dict[FamilyName, Family] = {
    "qwen2_5_vl": Family(14, tuple(_OPENAI_CLIP.image_mean), tuple(_OPENAI_CLIP.image_std)),
    "qwen3_vl": Family(16, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), timestamps=True),
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
        hidden: Width of the language model.
        layers: Its depth.
        heads: Its attention heads; hidden / heads must be a head size of vLLM's CPU kernels (32, 64 ...).
        vision_hidden: Width of the vision tower (depth 1; Qwen3-VL: 2, the first feeds DeepStack).
        vision_heads: Its attention heads.
        seed: Seed of the initial weights.
    """

    family: FamilyName = "qwen2_5_vl"
    hidden: PositiveInt = 64
    layers: PositiveInt = 2
    heads: PositiveInt = 2
    vision_hidden: PositiveInt = 32
    vision_heads: PositiveInt = 2
    seed: NonNegativeInt = 0

    def __post_init__(self) -> None:
        for width, heads in (("hidden", "heads"), ("vision_hidden", "vision_heads")):
            if getattr(self, width) % getattr(self, heads):
                raise ValueError(
                    f"{width} must be a multiple of {heads}, got {getattr(self, width)} and {getattr(self, heads)}"
                )


def build_tokenizer(corpus: Iterable[str], own_tags: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """A byte-level BPE with Qwen2.5's pre-tokenisation, with a token per tag.

    Args:
        own_tags: More tags; they come last, so that other ids are the same without them.
    """
    tags = tuple(dict.fromkeys((*TAGS, *own_tags)))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORD_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    cut = re.compile("|".join(re.escape(token) for token in SPECIAL_TOKENS + tags))
    trainer = trainers.BpeTrainer(
        vocab_size=1024, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[], show_progress=False
    )
    tokenizer.train_from_iterator((piece for text in corpus for piece in cut.split(text)), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in tags])
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
    """A float32 model with random weights and the tokenizer's vocabulary."""
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    text, vision = _text_config(recipe, len(tokenizer), ids), _vision_config(recipe)
    classes: tuple[Any, Any] = (
        (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration)
        if recipe.family == "qwen2_5_vl"
        else (Qwen3VLConfig, Qwen3VLForConditionalGeneration)
    )
    config = classes[0](
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
    config.architectures = [classes[1].__name__]
    config._attn_implementation = "sdpa"
    torch.manual_seed(recipe.seed)
    model = classes[1](config).float()
    model.generation_config.eos_token_id = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    model.generation_config.pad_token_id = ids["<|endoftext|>"]
    return model


def _text_config(recipe: ModelRecipe, vocabulary: int, ids: Mapping[str, int]) -> dict[str, Any]:
    """The language model's part of a config."""
    half = recipe.hidden // recipe.heads // 2
    spatial = 3 * half // 8 if recipe.family == "qwen2_5_vl" else half // 3
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": 10_000.0,
        "mrope_section": [half - 2 * spatial, spatial, spatial],
    }
    shared = {
        "initializer_range": 0.02,
        "hidden_act": "silu",
        "vocab_size": vocabulary,
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
    if recipe.family == "qwen2_5_vl":
        return {**shared, "use_sliding_window": False}
    rope["mrope_interleaved"] = True
    return {**shared, "head_dim": 2 * half}


def _vision_config(recipe: ModelRecipe) -> dict[str, Any]:
    """The vision tower's part of a config."""
    shared = {
        "initializer_range": 0.02,
        "hidden_size": recipe.vision_hidden,
        "intermediate_size": 2 * recipe.vision_hidden,
        "num_heads": recipe.vision_heads,
        "in_channels": 3,
        "patch_size": FAMILIES[recipe.family].patch_side,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": TEMPORAL_PATCH,
        "out_hidden_size": recipe.hidden,
    }
    if recipe.family == "qwen2_5_vl":
        return {
            **shared,
            "depth": 1,
            "hidden_act": "silu",
            "window_size": 112,
            "fullatt_block_indexes": [0],
            "tokens_per_second": 2,
        }
    return {**shared, "depth": 2, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}


def family_of(model: Any) -> FamilyName:
    """Family of a model."""
    name: FamilyName = model.config.model_type
    return name


def image_processor(family: FamilyName = "qwen2_5_vl") -> Qwen2VLImageProcessor:
    """Image processor of a family's tiny model."""
    return Qwen2VLImageProcessor(**FAMILIES[family].processor)


def video_processor(family: FamilyName = "qwen2_5_vl") -> Any:
    """Video processor of a family's tiny model."""
    kind = Qwen2VLVideoProcessor if family == "qwen2_5_vl" else Qwen3VLVideoProcessor
    return kind(**FAMILIES[family].video_processor)


def chat_format(tokenizer: Any, family: FamilyName, template_kwargs: Mapping[str, Any] | None = None) -> ChatFormat:
    """Chat format of a family's tiny model."""
    return ChatFormat(
        tokenizer, image_processor(family), video_processor=video_processor(family), template_kwargs=template_kwargs
    )


def chat_format_of(model: Any, tokenizer: Any) -> ChatFormat:
    """Chat format of a tiny model."""
    return chat_format(tokenizer, family_of(model))


def load_chat_format(folder: Path) -> ChatFormat:
    """Chat format of a checkpoint, without loading its weights."""
    family = AutoConfig.from_pretrained(folder).model_type
    return chat_format(AutoTokenizer.from_pretrained(folder), family)


def write_qwen_files(folder: Path) -> None:
    """Add what Qwen2Tokenizer expects next to a saved tokenizer: the two classic files, and its name."""
    bpe = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(bpe["vocab"], ensure_ascii=False))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in bpe["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    config_file = folder / "tokenizer_config.json"
    config = json.loads(config_file.read_text()) | {"tokenizer_class": "Qwen2Tokenizer"}
    config_file.write_text(json.dumps(config, indent=2, ensure_ascii=False))


def save_checkpoint(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a Hugging Face checkpoint: weights, tokenizer, chat template and processors."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_qwen_files(folder)

    reloaded = AutoTokenizer.from_pretrained(folder)
    sample = "<|im_start|>user\n<frame3_time12.50s>What colour?\nA. red<|im_end|>\n<think>it is é, 42</think>"
    if len(reloaded) != len(tokenizer) or reloaded(sample)["input_ids"] != tokenizer(sample)["input_ids"]:
        raise RuntimeError("the saved tokenizer differs from that of the training")
    processor = Qwen2_5_VLProcessor if family_of(model) == "qwen2_5_vl" else Qwen3VLProcessor
    processor(
        image_processor=image_processor(family_of(model)),
        tokenizer=reloaded,
        video_processor=video_processor(family_of(model)),
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)


def load_checkpoint(folder: Path) -> tuple[Any, Any]:
    """Load the model (float32) and the tokenizer of a folder."""
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    return model, AutoTokenizer.from_pretrained(folder)
