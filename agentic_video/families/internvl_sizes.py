"""One size for all images: InternVL's processor stretches each to a square, whatever its shape.

It also cuts large images into several such squares, unless told otherwise. Frames are shown as one square: the store
stretches them, and the processor keeps a square of that size as it is, cutting or not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

from agentic_video.families.base import ProcessorError, ProcessorRules
from agentic_video.families.files import image_values
from agentic_video.utils.errors import one_line

DEFAULT_TOKENS, DEFAULT_SIDE = 256, 384
"""Defaults of transformers' classes: tokens of a square, its side in pixels."""


@dataclass(frozen=True)
class SquareRules(ProcessorRules):
    """The one size that the processor keeps.

    Attributes:
        square_tokens: Placeholders of an image of that size.
        most_squares: Squares of the largest image with which vLLM measures the model, as the files say.
    """

    width: int
    height: int
    square_tokens: int
    most_squares: int = 1
    takes_clips = False

    @property
    def side(self) -> int:
        return isqrt(self.width * self.height // self.square_tokens)

    @property
    def most_image_tokens(self) -> int:
        return self.square_tokens * self.most_squares

    def resized(self, width: int, height: int, frames: int = 0) -> tuple[int, int]:
        if frames:
            raise ProcessorError("this model is shown no clips; set agentic_video.system.frames_as=images")
        return self.width, self.height

    def tokens(self, width: int, height: int, frames: int = 0) -> int:
        self.resized(width, height, frames)
        return self.square_tokens


def rules_of(processor: Any) -> SquareRules:
    """Rules of a loaded processor."""
    image = processor.image_processor
    try:
        return _rules(image.size, image.crop_to_patches, image.max_patches, processor.image_seq_length)
    except (AttributeError, TypeError) as error:
        raise ProcessorError(f"no rule for the sizes of a {type(image).__name__}: {one_line(error)}") from error


def rules_in(folder: Path) -> SquareRules:
    """Rules in a checkpoint's files."""
    nested, image = image_values(folder)
    size = image.get("size") or {"height": DEFAULT_SIDE, "width": DEFAULT_SIDE}
    tokens = nested.get("image_seq_length", DEFAULT_TOKENS)
    try:
        return _rules(size, image.get("crop_to_patches", False), image.get("max_patches", 12), tokens)
    except (KeyError, TypeError, ValueError) as error:
        raise ProcessorError(f"the processor's file can't be read: {one_line(error)}") from error


def _rules(size: Mapping[str, Any], cut: bool, most: int, tokens: int) -> SquareRules:
    return SquareRules(int(size["width"]), int(size["height"]), int(tokens), int(most) + 1 if cut and most > 1 else 1)
