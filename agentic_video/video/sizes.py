"""The arithmetic of frame sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

MAX_ASPECT_RATIO = 200
"""Longer side over shorter side beyond which Qwen2-VL's processor refuses an image."""


@dataclass(frozen=True)
class PixelBudget:
    """How many pixels one frame may have.

    Attributes:
        min_pixels: Least area (pixels); smaller frames are enlarged.
        max_pixels: Greatest area (pixels); larger frames are reduced.
        factor: Both sides become multiples of this many pixels (patch size times merge size of the vision tower).

    Raises:
        ValueError: When no size can satisfy the budget.
    """

    min_pixels: int
    max_pixels: int
    factor: int = 28

    def __post_init__(self) -> None:
        if self.factor < 1:
            raise ValueError(f"factor must be at least 1, got {self.factor}")
        if self.min_pixels < 0:
            raise ValueError(f"min_pixels must not be negative, got {self.min_pixels}")
        if self.max_pixels < max(self.min_pixels, self.factor * self.factor):
            raise ValueError(
                f"max_pixels ({self.max_pixels}) must be at least min_pixels ({self.min_pixels}) "
                f"and one {self.factor}x{self.factor} cell"
            )


def shared_budget(tokens: int, count: int, *, least: int = 1, most: int, factor: int = 28) -> PixelBudget:
    """The pixels of one of several pictures that share so many visual tokens.

    Args:
        tokens: Of all of them together.
        count: How many pictures, or pairs of a clip's frames, which a model merges into one.
        least: Fewest tokens of a picture that is enlarged for them; what all share goes before it.
        most: Most tokens of a picture.
        factor: Side of a visual token in pixels.

    Raises:
        ValueError: When there is no picture, or not even a token for it.
    """
    if count < 1 or min(tokens, least, most) < 1:
        raise ValueError(f"{tokens} tokens for {count} pictures of {least} to {most} tokens: all must be positive")
    each = max(1, min(most, tokens // count))
    return PixelBudget((least if least < each else 1) * factor**2, each * factor**2, factor)


def fit_size(width: int, height: int, budget: PixelBudget) -> tuple[int, int]:
    """Choose the size of a frame under a pixel budget, as Qwen2-VL's ``smart_resize`` does.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        budget: Area bounds and the factor.

    Returns:
        (width, height) in pixels, multiples of ``budget.factor``, area within the budget and aspect ratio as close to
        the original as that allows. As in ``smart_resize``, sides far from square under a tight budget can leave the
        area out of bounds, because a side is never less than one factor.

    Raises:
        ValueError: On sides that are not positive, or an aspect ratio above 200.
    """
    check_sides(width, height)
    factor = budget.factor
    # Python's round (half to even) and the order of the divisions are those of smart_resize: the processor recomputes
    # the size and both must agree to the pixel.
    new_width, new_height = round(width / factor) * factor, round(height / factor) * factor
    if new_width * new_height > budget.max_pixels:
        shrink = math.sqrt((height * width) / budget.max_pixels)
        new_width = max(factor, math.floor(width / shrink / factor) * factor)
        new_height = max(factor, math.floor(height / shrink / factor) * factor)
    elif new_width * new_height < budget.min_pixels:
        grow = math.sqrt(budget.min_pixels / (height * width))
        new_width = math.ceil(width * grow / factor) * factor
        new_height = math.ceil(height * grow / factor) * factor
    return new_width, new_height


def fit_within(width: int, height: int, max_width: int, max_height: int, factor: int = 1) -> tuple[int, int]:
    """Scale a frame down to lie within a box; a frame that fits already is not enlarged.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        max_width: Width of the box in pixels, at least ``factor``.
        max_height: Height of the box in pixels, at least ``factor``.
        factor: Both sides are rounded to the nearest multiple of this that still lies in the box.

    Returns:
        (width, height) in pixels.

    Raises:
        ValueError: On sides that are not positive or a box smaller than one factor.
    """
    _check_sides(width, height)
    if factor < 1:
        raise ValueError(f"factor must be at least 1, got {factor}")
    if max_width < factor or max_height < factor:
        raise ValueError(f"a {max_width}x{max_height} box cannot hold one {factor}x{factor} cell")
    scale = min(1.0, max_width / width, max_height / height)
    return _round_side(width * scale, max_width, factor), _round_side(height * scale, max_height, factor)


def resize(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """Resize a picture with an antialiased bicubic filter, as PIL's and the image processors'.

    torch's differs from PIL's in one value of a few hundred, by 1 or 2 of 255, and takes an eighth of its time.

    Args:
        image: RGB uint8 array of shape (height, width, 3).
        width: New width in pixels.
        height: New height in pixels.

    Returns:
        RGB uint8 array of shape (``height``, ``width``, 3); the input itself when the size is right already.

    Raises:
        ValueError: When the array is not an RGB uint8 picture or a side is not positive.
    """
    _check_sides(width, height)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"expected a uint8 array (height, width, 3), got {image.dtype} {image.shape}")
    if image.shape[:2] == (height, width):
        return image
    # Here, as it takes seconds, and whoever shows frames at the size that they have needs none of it.
    from torch import from_numpy
    from torch.nn.functional import interpolate

    # Made a batch by torch, not by numpy, whose stride of 0 has torch turn the channels outermost, and back.
    batch = from_numpy(np.require(image, requirements=("C", "W"))).unsqueeze(0).permute(0, 3, 1, 2)
    resized = interpolate(batch, size=(height, width), mode="bicubic", antialias=True)
    return np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy())


def _round_side(side: float, limit: int, factor: int) -> int:
    return min(max(factor, round(side / factor) * factor), limit // factor * factor)


def check_sides(width: int, height: int) -> None:
    """Refuse sides that Qwen2-VL's processor refuses.

    Raises:
        ValueError: One isn't positive, or is more than :data:`MAX_ASPECT_RATIO` times the other.
    """
    _check_sides(width, height)
    ratio = max(width, height) / min(width, height)
    if ratio > MAX_ASPECT_RATIO:
        raise ValueError(f"aspect ratio {ratio:.1f} of a {width}x{height} frame exceeds {MAX_ASPECT_RATIO}")


def _check_sides(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise ValueError(f"width and height must be positive, got {width}x{height}")
