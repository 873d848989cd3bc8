"""Gemma 4's E models (E2B, E4B): pictures scaled to a budget of tokens, one position a token."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from agentic_video.families.base import ModelFamily, ProcessorError, ProcessorRules, kept_tensors
from agentic_video.families.files import read_values
from agentic_video.families.gemma4_sizes import BudgetRules, rules_in, rules_of
from agentic_video.families.text_only import run_tower_always
from agentic_video.utils.seam import Seam

if TYPE_CHECKING:
    import torch

    from agentic_video.families.tiny import TinyModels

MODELING = "transformers.models.gemma4.modeling_gemma4"
TEXT_ONLY = Seam(
    "agentic_video.families.gemma4:text_only_batches",
    MODELING,
    {f"{MODELING}:Gemma4Model.forward": "04789b876909", f"{MODELING}:Gemma4Model.get_image_features": "b4b5a9c8cd7b"},
    "a micro-batch without any image leaves the vision tower out, for which other ranks wait",
)


class Gemma4(ModelFamily):
    """The family. It tells the planner nothing: layers differ in width, and share keys and values."""

    model_types = ("gemma4",)
    processor_classes = ("Gemma4Processor",)
    example = "google/gemma-4-E2B-it"
    image_token = "<|image|>"
    image_ends = ("<|image>", "<image|>")
    tower = "vision_tower"
    merger = "embed_vision"
    tower_layer = "model.vision_tower.encoder.layers.0.self_attn.q_proj.linear"
    preloaded = (MODELING, "vllm.model_executor.models.gemma4_mm")
    seams = (TEXT_ONLY,)

    def rules(self, processor: Any) -> ProcessorRules:
        text = getattr(getattr(processor, "config", None), "text_config", None)
        _require_causal(getattr(text, "use_bidirectional_attention", None))
        return rules_of(processor)

    def rules_in(self, folder: Path) -> ProcessorRules:
        _require_causal(read_values(folder / "config.json").get("text_config", {}).get("use_bidirectional_attention"))
        return rules_in(folder)

    def published_rules(self, facts: Any) -> ProcessorRules:
        side = facts.patch * facts.merge
        return BudgetRules(side, facts.image[1] // side**2)

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
        made = processor.image_processor(images=tensors, return_tensors="pt", device=device)
        names = ("pixel_values", "image_position_ids")
        rows = zip(*(made[name].split(1) for name in names), strict=True)
        return {key: dict(zip(names, row, strict=True)) for key, row in zip(images, rows, strict=True)}

    @cached_property
    def tiny(self) -> "TinyModels":
        from agentic_video.families.gemma4_tiny import TinyGemma4

        return TinyGemma4()


def _require_causal(bidirectional: str | None) -> None:
    """Refuse the larger models, whose image tokens look at each other."""
    if bidirectional is not None:
        raise ProcessorError(
            f"use_bidirectional_attention={bidirectional}: of this family E2B and E4B are known; vLLM plays the larger "
            "ones otherwise than transformers trains them"
        )


def text_only_batches(modeling: ModuleType) -> None:
    """Run the vision tower in micro-batches without images, too."""

    def blank(model: Any) -> Mapping[str, Any]:
        import torch

        vision, device = model.config.vision_config, model.get_input_embeddings().weight.device
        side = vision.pooling_kernel_size
        places = torch.tensor([[x, y] for y in range(side) for x in range(side)], device=device)
        pixels = torch.zeros(1, side**2, 3 * vision.patch_size**2, device=device)
        return {"pixel_values": pixels, "image_position_ids": places[None]}

    run_tower_always(modeling.Gemma4Model, blank)
