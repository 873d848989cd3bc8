"""A tiny CLIP that finds frames of synthetic videos by text: open_clip's own class, trained in seconds on two cores.

Load its folder with ``open_clip.create_model_and_transforms("local-dir:<folder>")``; the tokenizer lies next to the
weights, so nothing is downloaded."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from agentic_video.toyworld.questions import scenes
from agentic_video.toyworld.world import COLOURS, TINTS, Kind, Renderer, Scene, WorldRecipe
from agentic_video.video.sizes import resize

SIDE = 28
"""Side of the model's pictures in pixels."""
CONTEXT = 16
"""Tokens of a text with its start and end; longer texts are cut."""

MARK = "mark"
CONCEPTS: tuple[str, ...] = (*COLOURS, *TINTS, MARK)
"""Contents of a frame: flashing colours, a tint behind them, the mark."""

_COLOUR_TEXTS = (
    "{}",
    "{} flash",
    "a {} flash",
    "{} square",
    "a {} shape",
    "the frame with {}",
    "the colour {}",
    "where {} shows",
    "something {}",
    "what colour shows beside {}",
)
_TINT_TEXTS = ("{} background", "a {} background", "the background is {}", "plain {} background")
_MARK_TEXTS = ("mark", "the mark", "a black mark", "the black mark")
_PAD, _START, _END, _UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"


@dataclass(frozen=True)
class ClipRecipe:
    """Sizes and training of the tiny CLIP.

    Attributes:
        learning_rate: Peak of AdamW's rate, which rises over a tenth of the steps and falls to zero.
        distortion: Standard deviation (0 to 255) of noise that imitates encoding.
        unknown: Share of texts with one to three unknown words around them.
    """

    width: int = 64
    layers: int = 2
    frames: int = 3000
    steps: int = 300
    batch: int = 96
    learning_rate: float = 2e-3
    distortion: float = 8.0
    unknown: float = 0.3


def make_clip(folder: Path, world: WorldRecipe, seed: int, recipe: ClipRecipe | None = None) -> None:
    """Train a tiny CLIP on rendered frames of a world and write it to a folder."""
    import open_clip
    from safetensors.torch import save_file

    started = time.monotonic()
    recipe = recipe or ClipRecipe()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(folder)
    config = model_config(recipe, len(tokenizer), tokenizer.get_vocab()[_END])
    (folder / "open_clip_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    pictures, holds = make_frames(world, seed, recipe.frames)
    threads = torch.get_num_threads()
    # Matrices of this size gain nothing from a second thread, and lose a lot where other work wants the core.
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = open_clip.CLIP(**config["model_cfg"])
            loss = _train(model, tokenizer, pictures, holds, recipe, config["preprocess_cfg"], seed)
    finally:
        torch.set_num_threads(threads)
    save_file(model.state_dict(), str(folder / "open_clip_model.safetensors"))
    seconds = time.monotonic() - started
    print(f"[clip] {recipe.frames} frames, {recipe.steps} steps, loss {loss:.4f}, {seconds:.1f} s", flush=True)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of whole words, those that describe :data:`CONCEPTS`; any other word is unknown."""
    words = sorted({word for text in _all_texts() for word in text.split()})
    vocabulary = {token: number for number, token in enumerate([_PAD, _START, _END, _UNKNOWN, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=_UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{_START} $A {_END}", special_tokens=[(_START, vocabulary[_START]), (_END, vocabulary[_END])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=_PAD,
        bos_token=_START,
        eos_token=_END,
        unk_token=_UNKNOWN,
        model_max_length=CONTEXT,
        split_special_tokens=True,
    )


def model_config(recipe: ClipRecipe, vocabulary: int, end: int) -> dict[str, Any]:
    """Content of ``open_clip_config.json``, for a vocabulary size and the id that ends a text."""
    heads = max(1, recipe.width // 32)
    return {
        "model_cfg": {
            "embed_dim": recipe.width,
            "init_logit_bias": -5.0,
            "vision_cfg": {
                "image_size": SIDE,
                "patch_size": 14,
                "width": recipe.width,
                "layers": recipe.layers,
                "head_width": recipe.width // heads,
                "mlp_ratio": 2.0,
            },
            "text_cfg": {
                "context_length": CONTEXT,
                "vocab_size": vocabulary,
                "width": recipe.width,
                "heads": heads,
                "layers": recipe.layers,
                "mlp_ratio": 2.0,
                "pool_type": "eos",
                "eos_id": end,
                "hf_tokenizer_name": "local",  # any name: for a folder, the tokenizer next to the weights is used
            },
        },
        "preprocess_cfg": {
            "size": SIDE,
            "mean": [0.5] * 3,
            "std": [0.25] * 3,
            "interpolation": "bicubic",
            "resize_mode": "squash",
        },
    }


def make_frames(world: WorldRecipe, seed: int, count: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Render frames and label them.

    Returns:
        RGB pictures, shape (count, SIDE, SIDE, 3), and 0 or 1 for each of :data:`CONCEPTS`, shape (count, concepts).
    """
    # Whatever the world asks, the model must know plain backgrounds, single colours and pairs.
    kinds: list[Kind] = list(dict.fromkeys(["colour", "beside", "overview", *(kind for kind, _ in world.mixture)]))
    recipe = replace(world, mixture=tuple((kind, 1 / len(kinds)) for kind in kinds))
    rng = np.random.default_rng([seed, 5])
    pictures: list[npt.NDArray[np.uint8]] = []
    holds: list[npt.NDArray[np.float32]] = []
    for scene in scenes("retrieval", count, seed, recipe):
        renderer = Renderer(scene, recipe)
        times = [float(rng.uniform(0, scene.seconds))]
        times += [float(rng.uniform(flash.start, flash.end)) for flash in scene.flashes for _ in range(2)]
        times += [scene.mark_time] if scene.mark_time is not None else []
        for moment in times:
            index = min(scene.seconds * recipe.fps - 1, round(moment * recipe.fps))
            pictures.append(resize(renderer.frame(index), SIDE, SIDE))
            holds.append(_held(scene, index / recipe.fps))
        if len(pictures) >= count:
            break
    return np.stack(pictures[:count]), np.stack(holds[:count])


def _held(scene: Scene, moment: float) -> npt.NDArray[np.float32]:
    """Concepts that the frame at a time holds, by the renderer's own rules."""
    held = {scene.tint}
    held |= {f.colour for flash in scene.flashes if flash.start <= moment < flash.end for f in flash.figures}
    if scene.mark_time is not None and abs(moment - scene.mark_time) < 0.25:
        held.add(MARK)
    return np.array([concept in held for concept in CONCEPTS], dtype=np.float32)


def _all_texts() -> list[str]:
    """All texts of the training."""
    return [text for concept in CONCEPTS for text in _texts_of(concept)]


def _texts_of(concept: str) -> list[str]:
    """Texts that name a concept."""
    if concept == MARK:
        return list(_MARK_TEXTS)
    return [text.format(concept) for text in (_TINT_TEXTS if concept in TINTS else _COLOUR_TEXTS)]


def _describe(rng: np.random.Generator, unknown: float) -> list[str]:
    """A text for each concept, some with words around it that the tokenizer doesn't know."""
    texts = []
    for concept in CONCEPTS:
        text = str(rng.choice(_texts_of(concept)))
        if rng.random() < unknown:
            before, after = rng.integers(0, 3, 2)
            text = f"{'? ' * before}{text}{' ?' * after}"
        texts.append(text)
    return texts


def _train(
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    pictures: npt.NDArray[np.uint8],
    holds: npt.NDArray[np.float32],
    recipe: ClipRecipe,
    preprocess: dict[str, Any],
    seed: int,
) -> float:
    """Train in place with SigLIP's sigmoid loss over all pairs of a frame and a text: a frame may hold several
    concepts."""
    rng = np.random.default_rng([seed, 6])
    mean, std = (torch.tensor(preprocess[key]).view(3, 1, 1) for key in ("mean", "std"))
    images = torch.from_numpy(pictures).permute(0, 3, 1, 2).float()
    targets = torch.from_numpy(holds)
    # A frame that holds a flash is rarer than its background, and matters more.
    rarity = 1 / targets.mean(0).clamp_min(1e-3)
    weight = torch.where(targets > 0, rarity.clamp_max(20.0), 1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.learning_rate, total_steps=recipe.steps, pct_start=0.1
    )
    value = float("nan")
    model.train()
    for _ in range(recipe.steps):
        chosen = torch.from_numpy(rng.choice(len(images), recipe.batch))
        noise = torch.randn(recipe.batch, 3, SIDE, SIDE) * recipe.distortion
        batch = (((images[chosen] + noise).clamp(0, 255) / 255) - mean) / std
        tokens = _tokens(tokenizer, _describe(rng, recipe.unknown))
        similarity = model.encode_image(batch, normalize=True) @ model.encode_text(tokens, normalize=True).T
        logits = similarity * model.logit_scale.exp() + model.logit_bias
        loss = F.binary_cross_entropy_with_logits(logits, targets[chosen], weight=weight[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        value = float(loss.detach())
    model.eval()
    return value


def _tokens(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> torch.Tensor:
    """Ids as open_clip's tokenizer wrapper makes them, shape (len(texts), CONTEXT)."""
    encoded = tokenizer(list(texts), padding="max_length", truncation=True, max_length=CONTEXT, return_tensors="pt")
    ids: torch.Tensor = encoded["input_ids"]
    return ids
