"""Hugging Face's own processors of published checkpoints, made from their facts."""

from typing import Any

from transformers import Qwen2VLImageProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

from agentic_video.families.base import ProcessorRules
from agentic_video.families.qwen_vl_sizes import GridRules
from agentic_video.video.sizes import PixelBudget
from tests.families.processors import processor_of


def image_processor_of(rules: ProcessorRules) -> Any:
    """The image processor that has these rules."""
    assert isinstance(rules, GridRules)
    return Qwen2VLImageProcessor(**_values(rules, rules.image))


def video_processor_of(rules: ProcessorRules) -> Any:
    """The video processor that has these rules."""
    assert isinstance(rules, GridRules) and rules.clip is not None
    kind = Qwen3VLVideoProcessor if rules.clip_total else Qwen2VLVideoProcessor
    return kind(**_values(rules, rules.clip))


def hf_processor_of(rules: ProcessorRules) -> Any:
    """Both, as a processor holds them."""
    return processor_of(image_processor_of(rules), video_processor_of(rules))


def _values(rules: GridRules, bounds: PixelBudget) -> dict[str, Any]:
    return {
        "size": {"shortest_edge": bounds.min_pixels, "longest_edge": bounds.max_pixels},
        "patch_size": rules.side // rules.merge,
        "merge_size": rules.merge,
        "temporal_patch_size": rules.temporal,
    }
