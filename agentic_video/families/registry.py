"""The families of models, and the family of a model."""

import json
import os
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentic_video.families.base import ModelFamily, ProcessorRules
from agentic_video.families.gemma4 import Gemma4
from agentic_video.families.glm4v import Glm4v
from agentic_video.families.internvl import InternVL
from agentic_video.families.qwen2_5_vl import Qwen25VL
from agentic_video.families.qwen2_vl import Qwen2VL
from agentic_video.families.qwen3_5 import Qwen35
from agentic_video.families.qwen3_5_moe import Qwen35Moe
from agentic_video.families.qwen3_vl import Qwen3VL
from agentic_video.families.qwen3_vl_moe import Qwen3VLMoe
from agentic_video.utils.errors import one_line

OWN = "AGENTIC_VIDEO_FAMILIES"
"""Environment variable with families of your own, ``module:Class``, several with commas between."""


def own_families(named: str) -> Iterator[ModelFamily]:
    """Families that are named as in :data:`OWN`; SystemExit in one line if one can't be had."""
    for name in filter(None, (part.strip() for part in named.split(","))):
        try:
            family = pkgutil.resolve_name(name)()
            if not isinstance(family, ModelFamily):
                raise TypeError("it is no ModelFamily")
        except Exception as error:  # whatever a user's module raises
            raise SystemExit(f"{OWN}: {name}: {one_line(error)}; give module:Class, on PYTHONPATH") from error
        yield family


FAMILIES: tuple[ModelFamily, ...] = (
    *(Qwen25VL(), Qwen3VL(), Qwen2VL(), Qwen35(), Qwen35Moe(), InternVL(), Glm4v(), Qwen3VLMoe(), Gemma4()),
    *own_families(os.environ.get(OWN, "")),
)
FAMILY_OF: Mapping[str, ModelFamily] = {name: family for family in FAMILIES for name in family.model_types}
"""By ``model_type``."""
DEFAULT = FAMILIES[0].model_types[0]
"""``model_type`` of the toy world's tiny model."""


class UnknownFamilyError(ValueError):
    """A model of no family here."""


def family_of(model: Any) -> ModelFamily:
    """Family of a ``model_type``, of a config, or of a model or a processor.

    A processor that has no config is known by its class.

    Raises:
        UnknownFamilyError: There is none; says what is missing.
    """
    config = getattr(model, "config", model)
    kind = config if isinstance(config, str) else getattr(config, "model_type", None)
    if kind is None:
        named = type(model).__name__
        for family in FAMILIES:
            if named in family.processor_classes:
                return family
        kind = named
    if kind not in FAMILY_OF:
        known = ", ".join(FAMILY_OF)
        raise UnknownFamilyError(f"its model_type is {kind!r}, which no family here has; there are {known}")
    return FAMILY_OF[kind]


def load_processor(model: str | Path) -> Any:
    """The processor of a checkpoint, with the checkpoint's config where there is one.

    Raises:
        UnknownFamilyError: It is of no family here.
    """
    from transformers import AutoConfig, AutoProcessor

    processor = AutoProcessor.from_pretrained(model)
    with suppress(OSError, ValueError):  # a folder may hold a processor's files alone
        processor.config = AutoConfig.from_pretrained(model)
    family_of(processor)
    if not any(type(processor).__name__ in family.processor_classes for family in FAMILIES):
        raise UnknownFamilyError(f"{model}: its processor is a {type(processor).__name__}, which no family has")
    return processor


def rules_in(folder: Path) -> ProcessorRules:
    """Rules in a checkpoint's files; without a known ``config.json`` they are read as the first family's.

    Raises:
        ProcessorError: A file is missing, or can't be a processor's; the message names it.
    """
    return (family_in(folder) or FAMILIES[0]).rules_in(folder)


def family_in(folder: Path) -> ModelFamily | None:
    """Family of a checkpoint's folder; None if its ``config.json`` is missing or names none."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return FAMILY_OF.get(str(config.get("model_type"))) if isinstance(config, dict) else None
