"""Shared parts of the Qwen-VL families: patches in a grid, positions in three axes, ``visual`` as the tower."""

from collections.abc import Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from agentic_video.families.base import ModelFamily, Shown
from agentic_video.families.qwen_vl_sizes import GridRules, rules_in, rules_of
from agentic_video.families.shapes import TextShape, VisionShape
from agentic_video.utils.seam import Seam
from agentic_video.video.sizes import PixelBudget

if TYPE_CHECKING:
    import torch

POSITIONS_SOURCE = {"transformers.vision_utils:get_vision_position_ids": "c305b0918963"}
TEXT_ONLY = Seam(
    "agentic_video.families.qwen_vl:text_only_batches",
    "verl.models.transformers.qwen2_vl",
    {"verl.models.transformers.qwen2_vl:_get_input_embeds": "9c26194f2dc3"},
    "with transformers 5 a micro-batch of Qwen2.5-VL without any image fails: the dummy pass takes a mean of no tensor",
)


class QwenVL(ModelFamily):
    """Common parts of the families; ``timestamped`` if times are written as text before temporal patches."""

    image_token = "<|image_pad|>"
    video_token = "<|video_pad|>"
    fused = True
    tower_layer = "model.visual.blocks.0.attn.qkv"
    timestamped: ClassVar[bool] = False

    def rules(self, processor: Any) -> GridRules:
        return rules_of(processor)

    def rules_in(self, folder: Path) -> GridRules:
        return rules_in(folder, timestamped=self.timestamped)

    def published_rules(self, facts: Any) -> GridRules:
        image, clip = (PixelBudget(least, most, facts.patch * facts.merge) for least, most in (facts.image, facts.clip))
        return GridRules(image, clip, facts.clip_total, facts.temporal, facts.merge)

    def sizes(self, processor: Any, shown: Sequence[Shown]) -> "dict[str, torch.Tensor]":
        from agentic_video.families.qwen_vl_inputs import sizes_of

        return sizes_of(self.rules(processor), shown)

    def pixels(
        self,
        processor: Any,
        images: Mapping[str, np.ndarray],
        clips: Mapping[str, Sequence[np.ndarray] | np.ndarray],
        device: Any = "cpu",
    ) -> "dict[str, dict[str, torch.Tensor]]":
        from agentic_video.families.qwen_vl_inputs import clip_patches, image_patches

        made = image_patches(processor.image_processor, images, device)
        found = {key: {"pixel_values": patches} for key, patches in made.items()}
        if clips:  # a model without clips may have no processor for them
            made = clip_patches(processor.video_processor, clips, device)
            found |= {key: {"pixel_values_videos": patches} for key, patches in made.items()}
        return found

    def positions(self, processor: Any, ids: "torch.Tensor", sizes: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        """See the base; equal to those of verl's agent-loop worker, and many times as fast."""
        import torch

        from agentic_video.families.qwen_vl_clips import timed_positions

        vision = processor.config.vision_config
        images, clips, seconds = (
            sizes[name].tolist() if name in sizes else []
            for name in ("image_grid_thw", "video_grid_thw", "second_per_grid_ts")
        )
        places = timed_positions(
            ids.numpy(),
            images,
            self.timed_grids(vision, clips, seconds),
            image_token=processor.image_token_id,
            video_token=processor.video_token_id,
            merge=vision.spatial_merge_size,
        )
        return torch.from_numpy(np.concatenate([np.arange(len(ids))[None], places]))

    def timed_grids(
        self, vision: Any, clips: Sequence[Sequence[int]], seconds: Sequence[float]
    ) -> list[tuple[Sequence[int], float]]:
        """Size in patches of each run of a clip's placeholders, and positions from one temporal patch to the next."""
        return [(grid, 1.0) for grid in clips]

    def in_one_pass(
        self, processor: Any, ids: "torch.Tensor", inputs: Mapping[str, Any]
    ) -> "tuple[torch.Tensor, Mapping[str, Any]]":
        from agentic_video.families.qwen_vl_inputs import in_one_kind

        if "video_grid_thw" not in inputs:
            return ids, inputs
        image, video = processor.image_token_id, processor.video_token_id
        made = in_one_kind(inputs, ids.tolist(), image, video, processor.image_processor.merge_size)
        return ids.masked_fill(ids == video, image), made

    def vision_shape(self, config: Mapping[str, Any]) -> VisionShape:
        vision = config["vision_config"]
        return VisionShape(
            depth=vision["depth"],
            hidden=vision["hidden_size"],
            heads=vision["num_heads"],
            intermediate=vision["intermediate_size"],
            patch=vision.get("patch_size") or vision["spatial_patch_size"],
            merge=vision.get("spatial_merge_size", 2),
            temporal=vision.get("temporal_patch_size", 2),
        )

    def layer_parameters(self, text: TextShape) -> int:
        queries, keys = text.heads * text.head_dim, text.kv_heads * text.head_dim
        attention = text.hidden * (queries + 2 * keys) + queries * text.hidden
        return attention + self.attention_extras(text) + 3 * text.hidden * text.intermediate + 2 * text.hidden

    def attention_extras(self, text: TextShape) -> int:
        """Parameters of a decoder layer's attention without its matrices: Qwen2's biases on queries, keys, values."""
        return (text.heads + 2 * text.kv_heads) * text.head_dim

    def merger_parameters(self, vision: VisionShape, out: int) -> int:
        """Parameters of a merger's two layers."""
        wide = vision.merge**2 * vision.hidden
        return wide * wide + wide + wide * out + out


class _Tokens:
    """A vision tower that returns visual tokens alone."""

    def __init__(self, tower: Any):
        self._tower = tower

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tower, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = self._tower(*args, **kwargs)
        return getattr(output, "pooler_output", output)


class TowerOutput:
    """A model with such a tower, as verl's forward expects."""

    def __init__(self, model: Any):
        self._model, self.visual = model, _Tokens(model.visual)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def text_only_batches(qwen2_vl: ModuleType) -> None:
    """Unpack the vision tower's output in verl's dummy pass for micro-batches without images."""
    original = qwen2_vl._get_input_embeds

    @wraps(original)
    def _get_input_embeds(
        model: Any,
        input_ids: Any,
        attention_mask: Any = None,
        pixel_values: Any = None,
        pixel_values_videos: Any = None,
        *grids: Any,
        **more: Any,
    ) -> Any:
        if pixel_values is None and pixel_values_videos is None:
            model = TowerOutput(model)
        return original(model, input_ids, attention_mask, pixel_values, pixel_values_videos, *grids, **more)

    qwen2_vl._get_input_embeds = _get_input_embeds  # type: ignore[attr-defined]


def layout_seam(model_type: str, **sources: str) -> Seam:
    """The patch of a model's tower that looks positions up by size; ``sources`` are more functions that it replaces."""
    more = {f"transformers.vision_utils:{name}": digest for name, digest in sources.items()}
    return Seam(
        "agentic_video.families.qwen_vl_layout:cache_by_size",
        f"transformers.models.{model_type}.modeling_{model_type}",
        {**POSITIONS_SOURCE, **more},
        "a vision tower computes layouts picture by picture in each pass: an eighth of a small actor's time",
        cpu_only=True,
    )


def modules_of(model_type: str) -> tuple[str, ...]:
    """transformers' module of a model, and vLLM's."""
    return f"transformers.models.{model_type}.modeling_{model_type}", f"vllm.model_executor.models.{model_type}"
