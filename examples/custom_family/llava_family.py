"""LLaVA 1.5 as a family of one's own: one square an image, one position a token, CLIP as the vision tower."""

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from agentic_video.families.base import ModelFamily, ProcessorRules
from agentic_video.families.files import image_values
from agentic_video.families.internvl_sizes import SquareRules
from agentic_video.families.text_only import run_tower_always
from agentic_video.utils.seam import Seam

TEXT_ONLY = Seam(
    "llava_family:text_only_batches",
    "transformers.models.llava.modeling_llava",
    {"transformers.models.llava.modeling_llava:LlavaModel.forward": "205f2359d14a"},
    "a micro-batch without any image leaves the vision tower out, for which other ranks wait",
)
NAMES = Seam(
    "llava_family:tower_names",
    "vllm.model_executor.models.llava",
    {},
    "transformers 5 has no vision_model between the tower and its parts, which vLLM has",
)


class Llava(ModelFamily):
    """The family. It tells the planner nothing, so ``agentic-video plan`` refuses it; all else works."""

    model_types = ("llava",)
    processor_classes = ("LlavaProcessor",)
    image_token = "<image>"
    tower = "vision_tower"
    merger = "multi_modal_projector"
    tower_layer = "model.vision_tower.encoder.layers.0.self_attn.q_proj"
    seams, vllm_seams = (TEXT_ONLY,), (NAMES,)

    def rules(self, processor: Any) -> ProcessorRules:
        return square(processor.image_processor.crop_size["height"], processor.patch_size)

    def rules_in(self, folder: Path) -> ProcessorRules:
        whole, image = image_values(folder)
        return square(image["crop_size"]["height"], whole["patch_size"])

    def pixels(
        self, processor: Any, images: Mapping[str, np.ndarray], clips: Mapping[str, Any], device: Any = "cpu"
    ) -> dict[str, dict[str, Any]]:
        import torch

        tensors = [torch.tensor(image, device=device).permute(2, 0, 1) for image in images.values()]
        if not tensors:
            return {}
        made = processor.image_processor(images=tensors, return_tensors="pt", device=device)["pixel_values"]
        return {key: {"pixel_values": one[None]} for key, one in zip(images, made, strict=True)}

    @cached_property
    def tiny(self) -> Any:
        from tiny_llava import TinyLlava

        return TinyLlava()


def square(side: int, patch: int) -> SquareRules:
    """One size for all images, with a token a patch: the tower's first token is left out."""
    return SquareRules(side, side, (side // patch) ** 2)


def tower_names(llava: ModuleType) -> None:
    """Have vLLM take the names of the tower's weights as transformers has them now."""
    from vllm.model_executor.models.utils import WeightsMapper

    missing = WeightsMapper(orig_to_new_regex={re.compile(r"(?<=vision_tower\.)(?!vision_model)"): "vision_model."})
    llava.LlavaForConditionalGeneration.hf_to_vllm_mapper |= missing


def text_only_batches(modeling: ModuleType) -> None:
    """Run the vision tower in micro-batches without images, too."""

    def blank(model: Any) -> Mapping[str, Any]:
        import torch

        side = model.config.vision_config.image_size
        return {"pixel_values": torch.zeros(1, 3, side, side, device=model.get_input_embeddings().weight.device)}

    run_tower_always(modeling.LlavaModel, blank)
