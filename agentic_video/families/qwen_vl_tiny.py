"""Tiny models of the Qwen-VL families, and their forward pass: the stock one's, but fast for many small pictures."""

import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
import transformers
from transformers import Qwen2VLImageProcessor
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import apply_rotary_pos_emb_vision
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.vision_utils import get_vision_bilinear_indices_and_weights, get_vision_position_ids

from agentic_video.families.qwen_vl_clips import timed_positions
from agentic_video.families.tiny import CHATML, Images, TinyModels, TinySizes

MERGE, TEMPORAL_PATCH = 2, 2
"""Patches along a side of a visual token, and moments per patch."""
MAX_CLIP_FRAMES = 768


class TinyQwenVL(TinyModels):
    """Common parts of the families.

    Attributes:
        classes: Names of the config, the model and the processor in transformers.
        patch_side: Side of a patch in pixels.
        timestamps: Clips carry their times as text, and the size of all frames together is bounded.
    """

    special_tokens: ClassVar[tuple[str, ...]] = (
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|vision_pad|>",
        "<|image_pad|>",
        "<|video_pad|>",
    )
    end, pad = "<|im_end|>", "<|endoftext|>"
    chat_template = CHATML.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>").replace(
        "VIDEO", "<|vision_start|><|video_pad|><|vision_end|>"
    )
    axes = 3
    token_ids: ClassVar[dict[str, str]] = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    """Tokens whose ids are in the config."""
    classes: ClassVar[tuple[str, str, str]]
    patch_side: ClassVar[int]
    timestamps: ClassVar[bool] = False

    def __init__(self, timed_grids: Callable[..., list[tuple[Sequence[int], float]]]):
        self._timed_grids = timed_grids  # the family's

    @property
    @abstractmethod
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Channel means and deviations for pixels from 0 to 1."""

    def image_processor(self, *, min_pixels: int, max_pixels: int, **settings: Any) -> Any:
        """The image processor with :attr:`image_settings`."""
        return Qwen2VLImageProcessor(min_pixels=min_pixels, max_pixels=max_pixels, **settings)

    @property
    def video_processor(self) -> Any:
        """The class of the video processor."""
        return Qwen3VLVideoProcessor if self.timestamps else Qwen2VLVideoProcessor

    @property
    def frame_side(self) -> int:
        return self.patch_side * MERGE

    @property
    def image_settings(self) -> dict[str, Any]:
        """Arguments of the image processor; frames of one to four tokens keep their size."""
        mean, std = self.normalisation
        return {
            "min_pixels": self.frame_side**2,
            "max_pixels": (2 * self.frame_side) ** 2,
            "patch_size": self.patch_side,
            "temporal_patch_size": TEMPORAL_PATCH,
            "merge_size": MERGE,
            "image_mean": list(mean),
            "image_std": list(std),
        }

    @property
    def clip_settings(self) -> dict[str, Any]:
        """See the base; frames keep their size."""
        shared = {name: value for name, value in self.image_settings.items() if not name.endswith("_pixels")}
        least, most = self.frame_side**2, (2 * self.frame_side) ** 2
        if self.timestamps:
            least, most = TEMPORAL_PATCH * least, MAX_CLIP_FRAMES * most
        return {**shared, "size": {"shortest_edge": least, "longest_edge": most}}

    def processor(self, tokenizer: Any) -> Any:
        return getattr(transformers, self.classes[2])(
            image_processor=self.image_processor(**self.image_settings),
            tokenizer=tokenizer,
            video_processor=self.video_processor(**self.clip_settings),
            chat_template=self.chat_template,
        )

    def config_and_class(self, sizes: TinySizes, tokenizer: Any) -> tuple[Any, Any]:
        half = sizes.hidden // sizes.heads // 2
        text = {
            "initializer_range": 0.02,
            "hidden_act": "silu",
            "vocab_size": len(tokenizer),
            "hidden_size": sizes.hidden,
            "intermediate_size": 2 * sizes.hidden,
            "num_hidden_layers": sizes.layers,
            "num_attention_heads": sizes.heads,
            "num_key_value_heads": sizes.heads,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": False,
            "bos_token_id": tokenizer.pad_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            **self.text_settings(half),
        }
        vision = {
            "initializer_range": 0.02,
            "num_heads": sizes.vision_heads,
            "in_channels": 3,
            "patch_size": self.patch_side,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": TEMPORAL_PATCH,
            **self.vision_settings(sizes),
        }
        config = getattr(transformers, self.classes[0])(
            text_config=text,
            vision_config=vision,
            **{name: tokenizer.convert_tokens_to_ids(token) for name, token in self.token_ids.items()},
            tie_word_embeddings=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        return config, getattr(transformers, self.classes[1])

    @abstractmethod
    def text_settings(self, half: int) -> dict[str, Any]:
        """The family's own part of a language model's config; ``half`` of a head's numbers are turned by positions."""

    def vision_settings(self, sizes: TinySizes) -> dict[str, Any]:
        """The family's own part of a vision tower's config."""
        return {
            "hidden_size": sizes.vision_hidden,
            "intermediate_size": 2 * sizes.vision_hidden,
            "out_hidden_size": sizes.hidden,
        }

    def write_tokenizer_files(self, folder: Path) -> None:
        """See the base; Qwen2Tokenizer's two classic files, and its name."""
        bpe = json.loads((folder / "tokenizer.json").read_text())["model"]
        (folder / "vocab.json").write_text(json.dumps(bpe["vocab"], ensure_ascii=False))
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in bpe["merges"]]
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
        config_file = folder / "tokenizer_config.json"
        config = json.loads(config_file.read_text()) | {"tokenizer_class": "Qwen2Tokenizer"}
        config_file.write_text(json.dumps(config, indent=2, ensure_ascii=False))

    def embed(self, model: Any, ids: torch.Tensor, images: Images) -> dict[str, Any]:
        """See the base: ``inputs_embeds`` of shape (batch, length, hidden), and DeepStack's inputs where there are."""
        embedded: torch.Tensor = model.model.language_model.embed_tokens(ids)
        if not len(images):
            return {"inputs_embeds": embedded}
        features, *deepstack = self.encode(model, images)
        placeholders = (ids == model.config.image_token_id) | (ids == model.config.video_token_id)
        inputs: dict[str, Any] = {"inputs_embeds": embedded.masked_scatter(placeholders.unsqueeze(-1), features)}
        if deepstack:
            inputs |= {"visual_pos_masks": placeholders, "deepstack_visual_embeds": deepstack}
        return inputs

    def positions(self, model: Any, ids: Sequence[int], images: Images, seconds: Sequence[float] = ()) -> torch.Tensor:
        side, config = self.patch_side, model.config
        if not seconds and all(image.shape[0] == image.shape[1] == self.frame_side for image in images):
            # With one token an image the three axes all count tokens.
            return torch.arange(len(ids))[None].expand(3, -1)
        grids: dict[int, list[list[int]]] = {3: [], 4: []}
        for image in images:
            moments = -(-len(image) // TEMPORAL_PATCH) if image.ndim == 4 else 1
            grids[image.ndim].append([moments, image.shape[-3] // side, image.shape[-2] // side])
        places = timed_positions(
            np.asarray(ids),
            grids[3],
            self._timed_grids(config.vision_config, grids[4], seconds),
            image_token=config.image_token_id,
            video_token=config.video_token_id,
            merge=MERGE,
        )
        return torch.from_numpy(places)

    def encode(self, model: Any, images: Images) -> list[torch.Tensor]:
        """Visual tokens of frames, in order, as the tower gives them, then those for each layer of DeepStack.

        Each has the shape (tokens, hidden). The stock code attends image by image in a loop; for hundreds of tiny
        images a batched call per size is many times as fast.
        """
        by_size: dict[tuple[int, ...], list[int]] = {}
        for number, image in enumerate(images):
            by_size.setdefault(image.shape, []).append(number)
        pieces: list[tuple[torch.Tensor, ...]] = [()] * len(images)
        for shape, numbers in by_size.items():
            if len(shape) == 4:
                for number in numbers:
                    pieces[number] = self._encode_clip(model, images[number])
                continue
            streams = self._encode_equal(model, [images[number] for number in numbers])
            for place, number in enumerate(numbers):
                pieces[number] = tuple(stream[place] for stream in streams)
        return [torch.cat(stream) for stream in zip(*pieces, strict=True)]

    def _encode_clip(self, model: Any, clip: npt.NDArray[np.uint8]) -> tuple[torch.Tensor, ...]:
        """Features, then DeepStack's, of a clip by the stock tower; each of shape (tokens, hidden)."""
        processed = self.video_processor(**self.clip_settings)(
            videos=[torch.from_numpy(clip)],
            do_sample_frames=False,
            input_data_format="channels_last",
            return_tensors="pt",
        )
        grid = self.tower_grid(processed["video_grid_thw"])
        output = model.model.visual(processed["pixel_values_videos"], grid_thw=grid)
        return (output.pooler_output, *(getattr(output, "deepstack_features", None) or ()))

    def tower_grid(self, grid: torch.Tensor) -> torch.Tensor:
        """Sizes of clips in patches as the tower takes them."""
        return grid

    def _encode_equal(self, model: Any, images: Images) -> list[torch.Tensor]:
        """Features, then DeepStack's, of frames of one size; each of shape (images, tokens, hidden)."""
        tower, side = model.model.visual, self.patch_side
        pixels = torch.from_numpy(self.patches(images))
        count, size = pixels.shape[:2]
        grid = torch.tensor([[1, images[0].shape[0] // side, images[0].shape[1] // side]])
        angles = tower.rotary_pos_emb(get_vision_position_ids(grid, MERGE)).reshape(size, -1)
        angles = torch.cat((angles, angles), -1).repeat(count, 1)
        weight, bias = tower.patch_embed.proj.weight, tower.patch_embed.proj.bias
        hidden = F.linear(pixels.reshape(count * size, -1), weight.reshape(len(weight), -1), bias)
        hidden = self.placed(tower, hidden, grid)
        fed = list(getattr(tower, "deepstack_visual_indexes", ()))
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
            if number in fed:
                deepstack.append(tower.deepstack_merger_list[fed.index(number)](hidden))
        return [stream.reshape(count, size // MERGE**2, -1) for stream in (self.merged(tower, hidden), *deepstack)]

    def placed(self, tower: Any, hidden: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        """Embedded patches of pictures of one size, with what the tower adds for their places."""
        if not hasattr(tower, "pos_embed"):
            return hidden
        indices, weights = get_vision_bilinear_indices_and_weights(
            grid, num_grid_per_side=tower.num_grid_per_side, spatial_merge_size=MERGE
        )
        places = (tower.pos_embed(indices) * weights[:, :, None]).sum(0)
        return hidden + places.repeat(len(hidden) // len(places), 1)

    def merged(self, tower: Any, hidden: torch.Tensor) -> torch.Tensor:
        """Visual tokens of the last block's patches."""
        tokens: torch.Tensor = tower.merger(hidden)
        return tokens

    def patches(self, images: Images) -> npt.NDArray[np.float32]:
        """Patchify frames of one size as the image processor does.

        Returns:
            Normalised patches, shape (len(images), patches, 3 * 2 * patch_side**2); the patches of a visual token are
            adjacent.

        Raises:
            ValueError: The sizes differ, or aren't whole visual tokens.
        """
        height, width = images[0].shape[:2]
        if (
            any(image.shape != (height, width, 3) for image in images)
            or height % self.frame_side
            or width % self.frame_side
        ):
            raise ValueError(f"frames must be of one size, in multiples of {self.frame_side}, got {images[0].shape}")
        side, (mean, std) = self.patch_side, self.normalisation
        pixels = np.asarray(images, dtype=np.float32) / 255
        pixels = (pixels - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
        rows, columns = height // self.frame_side, width // self.frame_side
        cells = pixels.reshape(-1, rows, MERGE, side, columns, MERGE, side, 3).transpose(0, 1, 4, 2, 5, 7, 3, 6)
        cells = cells.reshape(len(images), -1, 3, 1, side**2)
        values = 3 * TEMPORAL_PATCH * side**2
        return np.ascontiguousarray(cells.repeat(TEMPORAL_PATCH, 3).reshape(len(images), -1, values))


@cache
def openai_clip() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Means and deviations of OpenAI's CLIP, the defaults of Qwen2-VL's processor."""
    processor = Qwen2VLImageProcessor()
    return tuple(processor.image_mean), tuple(processor.image_std)


class TinyQwen25VL(TinyQwenVL):
    """Tiny Qwen2.5-VL."""

    classes = ("Qwen2_5_VLConfig", "Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLProcessor")
    patch_side = 14

    @property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return openai_clip()

    def text_settings(self, half: int) -> dict[str, Any]:
        spatial = 3 * half // 8
        return {"rope_parameters": rope(half, spatial), "use_sliding_window": False}

    def vision_settings(self, sizes: TinySizes) -> dict[str, Any]:
        own = {"hidden_act": "silu", "window_size": 112, "fullatt_block_indexes": [0], "tokens_per_second": 2}
        return {**super().vision_settings(sizes), "depth": 1, **own}


class TinyQwen2VL(TinyQwenVL):
    """Tiny Qwen2-VL."""

    classes = ("Qwen2VLConfig", "Qwen2VLForConditionalGeneration", "Qwen2VLProcessor")
    patch_side = 14

    @property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return openai_clip()

    def text_settings(self, half: int) -> dict[str, Any]:
        return {"rope_parameters": rope(half, 3 * half // 8), "use_sliding_window": False}

    def vision_settings(self, sizes: TinySizes) -> dict[str, Any]:
        return {"depth": 1, "embed_dim": sizes.vision_hidden, "hidden_size": sizes.hidden, "mlp_ratio": 2}


class TinyQwen3VL(TinyQwenVL):
    """Tiny Qwen3-VL; of the tower's two blocks the first feeds DeepStack."""

    classes = ("Qwen3VLConfig", "Qwen3VLForConditionalGeneration", "Qwen3VLProcessor")
    patch_side = 16
    timestamps = True

    @property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)

    def text_settings(self, half: int) -> dict[str, Any]:
        return {"rope_parameters": {**rope(half, half // 3), "mrope_interleaved": True}, "head_dim": 2 * half}

    def vision_settings(self, sizes: TinySizes) -> dict[str, Any]:
        own = {"depth": 2, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
        return {**super().vision_settings(sizes), **own}


class TinyQwen3VLMoe(TinyQwen3VL):
    """Tiny Qwen3-VL with experts."""

    classes = ("Qwen3VLMoeConfig", "Qwen3VLMoeForConditionalGeneration", "Qwen3VLProcessor")

    def text_settings(self, half: int) -> dict[str, Any]:
        own = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": True}
        return {**super().text_settings(half), **own}


class TinyQwen35(TinyQwen3VL):
    """Tiny Qwen3.5; every second decoder layer has full attention, the first linear attention."""

    classes = ("Qwen3_5Config", "Qwen3_5ForConditionalGeneration", "Qwen3VLProcessor")

    def text_settings(self, half: int) -> dict[str, Any]:
        turned = {**rope(half // 2, half // 8), "mrope_interleaved": True, "partial_rotary_factor": 0.25}
        return {
            "rope_parameters": turned,
            "head_dim": 4 * half,
            "full_attention_interval": 2,
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 2 * half,
            "linear_value_head_dim": 2 * half,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
        }

    def vision_settings(self, sizes: TinySizes) -> dict[str, Any]:
        settings = super().vision_settings(sizes)
        return {name: value for name, value in settings.items() if not name.startswith("deepstack")}


class TinyQwen35Moe(TinyQwen35):
    """Tiny Qwen3.5 with experts."""

    classes = ("Qwen3_5MoeConfig", "Qwen3_5MoeForConditionalGeneration", "Qwen3VLProcessor")

    def text_settings(self, half: int) -> dict[str, Any]:
        own = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
        return {**super().text_settings(half), **own, "shared_expert_intermediate_size": 32}


def rope(half: int, spatial: int) -> dict[str, Any]:
    """Positions in three axes, of which height and width have ``spatial`` numbers each."""
    sections = [half - 2 * spatial, spatial, spatial]
    return {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": sections}
