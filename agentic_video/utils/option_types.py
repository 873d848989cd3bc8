"""Types of command options, with the values that they take; pydantic checks them once."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from tyro.conf import Suppress

from agentic_video.utils.environment import file_in_the_way


def _writable_folder(folder: Path) -> Path:
    if blocked := file_in_the_way(folder):
        raise ValueError(f"{'a file' if blocked == folder else f'{blocked} is a file'}; name a folder")
    return folder


def _writable_file(file: Path) -> Path:
    if file.is_dir():
        raise ValueError("a folder; name a file")
    if blocked := file_in_the_way(file.parent):
        raise ValueError(f"{blocked} is a file; choose another folder")
    return file


Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
OpenFraction = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Probability = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PositiveAmount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
OutputFolder = Annotated[Path, AfterValidator(_writable_folder)]
"""A folder that may have to be made."""
OutputFile = Annotated[Path, AfterValidator(_writable_file)]
"""A file whose folder may have to be made."""
ModelName = Annotated[str, AfterValidator(os.path.expanduser)]
"""Folder of a checkpoint, name on a hub, or address of a server."""
Overrides = Annotated[tuple[str, ...], Suppress]
"""Hydra overrides: the words of a command that are no options."""
