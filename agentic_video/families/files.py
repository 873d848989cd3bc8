"""Files of a checkpoint's processor, as transformers reads them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentic_video.families.base import ProcessorError
from agentic_video.utils.errors import one_line


def read_values(file: Path) -> Mapping[str, Any]:
    """Content of a checkpoint's file; empty if it is missing.

    Raises:
        ProcessorError: It holds no JSON object.
    """
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ProcessorError(f"{file.name} can't be read: {one_line(error)}") from error
    if not isinstance(found, dict):
        raise ProcessorError(f"{file.name} holds no JSON object")
    return found


def image_values(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Values of a folder's processor, and of its image processor.

    Raises:
        ProcessorError: A file can't be read, or there is no image processor.
    """
    nested = read_values(folder / "processor_config.json")
    image = nested.get("image_processor") or read_values(folder / "preprocessor_config.json")
    if not image:
        raise ProcessorError("no image processor (processor_config.json or preprocessor_config.json)")
    return nested, image
