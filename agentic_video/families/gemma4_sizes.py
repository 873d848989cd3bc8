"""Sizes that Gemma 4's processor keeps: those that fill its budget of visual tokens as well as their shape can.

It scales every picture to that budget and rounds sides down, so that few sizes stay as they are: of 70 tokens 432 x 336
pixels for pictures of four to three, and nothing smaller.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentic_video.families.base import ProcessorError, ProcessorRules
from agentic_video.families.files import image_values
from agentic_video.utils.errors import one_line

DEFAULT_PATCH, DEFAULT_POOL, DEFAULT_TOKENS = 16, 3, 280
"""Defaults of transformers' classes."""


@dataclass(frozen=True)
class BudgetRules(ProcessorRules):
    """Attributes of the processor: pixels along a side of a visual token, and most tokens of a picture."""

    token_side: int
    budget: int
    takes_clips = False

    @property
    def side(self) -> int:
        return self.token_side

    @property
    def most_image_tokens(self) -> int:
        return self.budget

    def resized(self, width: int, height: int, frames: int = 0) -> tuple[int, int]:
        if frames:
            raise ProcessorError("this model is shown no clips; set agentic_video.system.frames_as=images")
        if min(width, height) < 1:
            raise ValueError(f"a picture of {width}x{height} pixels")
        columns, rows = _cells(width, height, self.budget, self.side)
        return columns * self.side, rows * self.side

    def tokens(self, width: int, height: int, frames: int = 0) -> int:
        new_width, new_height = self.resized(width, height, frames)
        return new_width * new_height // self.side**2

    def kept(self, width: int, height: int, frames: int = 0) -> tuple[int, int]:
        """See the base; of the sizes that stay as they are, the one whose shape is the picture's most."""
        self.resized(width, height, frames)
        shape = math.log(width / height)
        columns, rows = min(
            _kept_cells(self.budget, self.side), key=lambda size: abs(math.log(size[0] / size[1]) - shape)
        )
        return columns * self.side, rows * self.side


@lru_cache
def _kept_cells(budget: int, side: int) -> tuple[tuple[int, int], ...]:
    """(columns, rows) of all sizes that stay as they are, the largest first."""
    sizes = [(columns, rows) for columns in range(1, budget + 1) for rows in range(1, budget // columns + 1)]
    kept = [size for size in sizes if _cells(size[0] * side, size[1] * side, budget, side) == size]
    return tuple(sorted(kept, key=lambda size: -size[0] * size[1]))


def _cells(width: int, height: int, budget: int, side: int) -> tuple[int, int]:
    """Columns and rows of tokens that the processor makes of a picture."""
    scale = math.sqrt(budget * side**2 / (width * height))
    columns, rows = (math.floor(scale * length / side) for length in (width, height))
    if not rows:
        return min(width // height, budget), 1
    if not columns:
        return 1, min(height // width, budget)
    return columns, rows


def rules_of(processor: Any) -> BudgetRules:
    """Rules of a loaded processor."""
    image = processor.image_processor
    try:
        budget = image.max_soft_tokens if image.do_resize else processor.image_seq_length  # a tiny model's resizes none
        return BudgetRules(int(image.patch_size * image.pooling_kernel_size), int(budget))
    except (AttributeError, TypeError) as error:
        raise ProcessorError(f"no rule for the sizes of a {type(image).__name__}: {one_line(error)}") from error


def rules_in(folder: Path) -> BudgetRules:
    """Rules in a checkpoint's files."""
    whole, image = image_values(folder)
    resizes = image.get("do_resize", True)
    budget = image.get("max_soft_tokens", DEFAULT_TOKENS) if resizes else whole.get("image_seq_length", DEFAULT_TOKENS)
    try:
        side = image.get("patch_size", DEFAULT_PATCH) * image.get("pooling_kernel_size", DEFAULT_POOL)
        return BudgetRules(int(side), int(budget))
    except (TypeError, ValueError) as error:
        raise ProcessorError(f"the processor's file can't be read: {one_line(error)}") from error
