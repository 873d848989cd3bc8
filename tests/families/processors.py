"""Processors of parts, for tests that need no checkpoint, and the names of the families."""

from types import SimpleNamespace
from typing import Any

from agentic_video.families.qwen_vl import QwenVL
from agentic_video.families.registry import DEFAULT, FAMILY_OF

QWEN_VL = tuple(name for name, family in FAMILY_OF.items() if isinstance(family, QwenVL))


class Processor(SimpleNamespace):
    """Parts that are told apart as a processor is."""

    __hash__ = object.__hash__


def processor_of(image_processor: Any, video_processor: Any = None, family: str = DEFAULT) -> Any:
    """A processor of a family."""
    config = SimpleNamespace(model_type=family)
    return Processor(config=config, image_processor=image_processor, video_processor=video_processor)
