"""InternVL3.5 as transformers has it (checkpoints named ``-HF``): one square an image, one position a token."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import isqrt
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from agentic_video.families.base import ModelFamily, ProcessorRules, kept_tensors
from agentic_video.families.internvl_sizes import SquareRules, rules_in, rules_of
from agentic_video.families.shapes import ActivationBytes, TextShape, VisionShape
from agentic_video.utils.errors import SetupError
from agentic_video.utils.seam import Seam

if TYPE_CHECKING:
    import torch

    from agentic_video.families.tiny import TinyModels

MODELING = "transformers.models.internvl.modeling_internvl"
TEXT_ONLY = Seam(
    "agentic_video.families.internvl:text_only_batches",
    MODELING,
    {
        f"{MODELING}:InternVLModel.forward": "64b78fc5121e",
        f"{MODELING}:InternVLModel.get_image_features": "0a1ffce3e85a",
    },
    "a micro-batch without any image leaves the vision tower out, for which other ranks wait",
)


class InternVL(ModelFamily):
    """The family; its processor's ``crop_to_patches`` changes nothing at the one size that is shown."""

    model_types = ("internvl",)
    processor_classes = ("InternVLProcessor",)
    example = "OpenGVLab/InternVL3_5-8B-HF"
    image_token = "<IMG_CONTEXT>"
    image_ends = ("<img>", "</img>")
    tower = "vision_tower"
    merger = "multi_modal_projector"
    tower_layer = "model.vision_tower.encoder.layer.0.attention.q_proj"
    preloaded = (MODELING, "vllm.model_executor.models.interns1")
    seams = (TEXT_ONLY,)
    activations = ActivationBytes(heads=10, block_hidden=16, block_intermediate=6, ends=5)

    def rules(self, processor: Any) -> ProcessorRules:
        return rules_of(processor)

    def rules_in(self, folder: Path) -> ProcessorRules:
        return rules_in(folder)

    def published_rules(self, facts: Any) -> ProcessorRules:
        pixels = facts.image[1]
        return SquareRules(isqrt(pixels), isqrt(pixels), pixels // (facts.patch * facts.merge) ** 2)

    def pixels(
        self,
        processor: Any,
        images: Mapping[str, np.ndarray],
        clips: Mapping[str, Sequence[np.ndarray] | np.ndarray],
        device: Any = "cpu",
    ) -> "dict[str, dict[str, torch.Tensor]]":
        tensors = kept_tensors(rules_of(processor), images, clips, device)
        if not tensors:
            return {}
        options = {"crop_to_patches": False, "return_tensors": "pt", "device": device}
        made = processor.image_processor(images=tensors, **options)["pixel_values"]
        return {key: {"pixel_values": one[None]} for key, one in zip(images, made, strict=True)}

    def text_shape(self, config: Mapping[str, Any]) -> TextShape:
        kind = config["text_config"].get("model_type", "qwen2")
        if kind != "qwen3":
            raise SetupError(f"the planner knows InternVL with qwen3's text, not with {kind}'s")
        return super().text_shape(config)

    def vision_shape(self, config: Mapping[str, Any]) -> VisionShape:
        vision = config["vision_config"]
        patch, size = (_side(vision[name]) for name in ("patch_size", "image_size"))
        return VisionShape(
            depth=vision["num_hidden_layers"],
            hidden=vision["hidden_size"],
            heads=vision["num_attention_heads"],
            intermediate=vision["intermediate_size"],
            patch=patch,
            merge=round(1 / config.get("downsample_ratio", 0.5)),
            temporal=1,
            positions=(size // patch) ** 2 + 1,
        )

    def layer_parameters(self, text: TextShape) -> int:
        """See the base; Qwen3's, with norms of a query's and of a key's head."""
        queries, keys = text.heads * text.head_dim, text.kv_heads * text.head_dim
        attention = 2 * text.hidden * (queries + keys) + 2 * text.head_dim
        return attention + 3 * text.hidden * text.intermediate + 2 * text.hidden

    def block_parameters(self, vision: VisionShape) -> int:
        """See the base; of the tower with 300 million parameters: biases everywhere, scales of both branches."""
        width, inner = vision.hidden, vision.intermediate
        return 4 * width * width + 4 * width + 2 * width * inner + inner + width + 6 * width

    def tower_parameters(self, vision: VisionShape, out: int) -> int:
        width, wide = vision.hidden, vision.merge**2 * vision.hidden
        embeddings = width * vision.patch_values + width + (vision.positions + 1) * width
        projector = 2 * wide + wide * out + out + out * out + out
        return embeddings + vision.depth * self.block_parameters(vision) + projector

    @cached_property
    def tiny(self) -> "TinyModels":
        from agentic_video.families.internvl_tiny import TinyInternVL

        return TinyInternVL()


def _side(size: Any) -> int:
    """Side of a square, which files give once or twice."""
    return int(size[0] if isinstance(size, list | tuple) else size)


def text_only_batches(modeling: ModuleType) -> None:
    """Run the vision tower in micro-batches without images, too."""

    def blank(model: Any) -> Mapping[str, Any]:
        import torch

        weight = model.get_input_embeddings().weight
        height, width = model.config.vision_config.image_size
        return {"pixel_values": torch.zeros(1, 3, height, width, device=weight.device)}

    from agentic_video.families.text_only import run_tower_always

    run_tower_always(modeling.InternVLModel, blank)
