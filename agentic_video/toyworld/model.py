"""A tiny model and its tokenizer: the real classes, small enough to learn on two cores.

The checkpoint loads in transformers, vLLM and verl; what is particular to its family is in ``families/``."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import NonNegativeInt, PositiveInt
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from agentic_video.families.registry import DEFAULT, family_of
from agentic_video.rollout.tokens import ChatFormat

TAGS = tuple(
    f"<{slash}{name}>"
    for name in ("think", "thinking", "answer", "action", "video_zoom", "tool_response", "tool_call", "turn_sum")
    for slash in ("", "/")
)
"""Tags of the systems' grammars; a system whose oracle names more has its own tokenizer."""

# How Qwen2.5's tokenizer cuts text before merging: words with one leading character, digits one by one.
_WORD_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class ModelRecipe:
    """Sizes of the tiny model.

    Attributes:
        hidden: Width of the language model.
        layers: Its depth.
        heads: Its attention heads; hidden / heads must be a head size of vLLM's CPU kernels (32, 64 ...).
        family: Its ``model_type``.
        vision_hidden: Width of the vision tower.
        vision_heads: Its attention heads.
        seed: Seed of the initial weights.
    """

    family: str = DEFAULT
    hidden: PositiveInt = 64
    layers: PositiveInt = 2
    heads: PositiveInt = 2
    vision_hidden: PositiveInt = 32
    vision_heads: PositiveInt = 2
    seed: NonNegativeInt = 0

    def __post_init__(self) -> None:
        family_of(self.family)
        for width, heads in (("hidden", "heads"), ("vision_hidden", "vision_heads")):
            if getattr(self, width) % getattr(self, heads):
                raise ValueError(
                    f"{width} must be a multiple of {heads}, got {getattr(self, width)} and {getattr(self, heads)}"
                )


def build_tokenizer(
    corpus: Iterable[str], own_tags: Sequence[str] = (), family: str = DEFAULT
) -> PreTrainedTokenizerFast:
    """A byte-level BPE with Qwen2.5's pre-tokenisation, with a token per tag.

    Args:
        own_tags: More tags; they come last, so that other ids are the same without them.
    """
    tags, tiny = tuple(dict.fromkeys((*TAGS, *own_tags))), family_of(family).tiny
    named = (tiny.end, tiny.pad, tiny.bos, *tiny.named_tokens.values())
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORD_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    cut = re.compile("|".join(re.escape(token) for token in tiny.special_tokens + tags))
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(tiny.special_tokens) if tiny.specials_first else [],
        show_progress=False,
    )
    tokenizer.train_from_iterator((piece for text in corpus for piece in cut.split(text)), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in tiny.special_tokens])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in tags])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=tiny.end,
        pad_token=tiny.pad,
        bos_token=tiny.bos,
        extra_special_tokens=[token for token in tiny.special_tokens if token not in named],
        **({"model_specific_special_tokens": dict(tiny.named_tokens)} if tiny.named_tokens else {}),
        chat_template=tiny.chat_template,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )


def build_model(tokenizer: Any, recipe: ModelRecipe) -> Any:
    """A float32 model with random weights and the tokenizer's vocabulary."""
    tiny = family_of(recipe.family).tiny
    config, model_class = tiny.config_and_class(recipe, tokenizer)
    config.architectures = [model_class.__name__]
    config._attn_implementation = "sdpa"
    torch.manual_seed(recipe.seed)
    model = model_class(config).float()
    tiny.prepare(model)
    end, pad = tokenizer.convert_tokens_to_ids([tiny.end, tiny.pad])
    model.generation_config.eos_token_id = [end, pad]
    model.generation_config.pad_token_id = pad
    return model


def chat_format(tokenizer: Any, family: str, template_kwargs: Mapping[str, Any] | None = None) -> ChatFormat:
    """Chat format of a family's tiny model."""
    model = family_of(family)
    return ChatFormat(tokenizer, model.tiny.processor(tokenizer), family=model, template_kwargs=template_kwargs)


def chat_format_of(model: Any, tokenizer: Any) -> ChatFormat:
    """Chat format of a tiny model."""
    return chat_format(tokenizer, model.config.model_type)


def load_chat_format(folder: Path) -> ChatFormat:
    """Chat format of a checkpoint, without loading its weights."""
    return chat_format(AutoTokenizer.from_pretrained(folder), AutoConfig.from_pretrained(folder).model_type)


def save_checkpoint(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a Hugging Face checkpoint: weights, tokenizer, chat template and processors."""
    tiny = family_of(model).tiny
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tiny.write_tokenizer_files(folder)

    reloaded = AutoTokenizer.from_pretrained(folder)
    sample = "<|im_start|>user\n<frame3_time12.50s>What colour?\nA. red<|im_end|>\n<think>it is é, 42</think>"
    if len(reloaded) != len(tokenizer) or reloaded(sample)["input_ids"] != tokenizer(sample)["input_ids"]:
        raise RuntimeError("the saved tokenizer differs from that of the training")
    tiny.processor(reloaded).save_pretrained(folder)


def load_checkpoint(folder: Path) -> tuple[Any, Any]:
    """Load the model (float32) and the tokenizer of a folder."""
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    return model, AutoTokenizer.from_pretrained(folder)
