"""Hugging Face's own processors of published checkpoints, made from their facts."""

from types import SimpleNamespace
from typing import Any

from transformers import Qwen2VLImageProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

from agentic_video.video.processor_rules import ProcessorRules
from agentic_video.video.sizes import PixelBudget


def image_processor_of(rules: ProcessorRules) -> Any:
    return Qwen2VLImageProcessor(**_values(rules, rules.image))


def video_processor_of(rules: ProcessorRules) -> Any:
    assert rules.clip is not None
    kind = Qwen3VLVideoProcessor if rules.clip_total else Qwen2VLVideoProcessor
    return kind(**_values(rules, rules.clip))


def hf_processor_of(rules: ProcessorRules) -> Any:
    return SimpleNamespace(image_processor=image_processor_of(rules), video_processor=video_processor_of(rules))


def _values(rules: ProcessorRules, bounds: PixelBudget) -> dict[str, Any]:
    return {
        "size": {"shortest_edge": bounds.min_pixels, "longest_edge": bounds.max_pixels},
        "patch_size": rules.side // rules.merge,
        "merge_size": rules.merge,
        "temporal_patch_size": rules.temporal,
    }
