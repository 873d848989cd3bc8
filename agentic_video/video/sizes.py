"""Frame sizes, and resizing and cropping to them."""

import math
from dataclasses import dataclass

import numpy as np

from agentic_video.types.frame import Crop, Frame
from agentic_video.types.plain import as_int

MAX_ASPECT_RATIO = 200
"""Longer side over shorter side beyond which Qwen2-VL's processor refuses an image."""


@dataclass(frozen=True)
class PixelBudget:
    """Bounds on the pixels of one frame.

    Raises:
        ValueError: No size can satisfy the budget.
    """

    min_pixels: int
    max_pixels: int
    factor: int = 28
    """Both sides become multiples of this many pixels (patch size times merge size of the vision tower)."""

    def __post_init__(self) -> None:
        if self.factor < 1 or self.min_pixels < 0:
            raise ValueError(
                f"factor must be at least 1 and min_pixels at least 0, got {self.factor}, {self.min_pixels}"
            )
        if self.max_pixels < max(self.min_pixels, self.factor * self.factor):
            raise ValueError(
                f"max_pixels ({self.max_pixels}) must be at least min_pixels ({self.min_pixels}) "
                f"and one {self.factor}x{self.factor} cell"
            )


def shared_budget(tokens: int, count: int, *, least: int = 1, most: int, factor: int = 28) -> PixelBudget:
    """Pixels of one of several pictures that share a number of visual tokens.

    Args:
        tokens: Of all pictures together.
        count: Pictures, or pairs of a clip's frames, which a model merges into one.
        least: Fewest tokens of a picture, which is enlarged to them; the sum has precedence.
        most: Most tokens of a picture.
        factor: Side of a visual token in pixels.
    """
    if count < 1 or min(tokens, least, most) < 1:
        raise ValueError(f"{tokens} tokens for {count} pictures of {least} to {most} tokens: all must be positive")
    each = max(1, min(most, tokens // count))
    return PixelBudget((least if least < each else 1) * factor**2, each * factor**2, factor)


def fit_size(
    width: int, height: int, budget: PixelBudget, frames: int = 1, padded: int | None = None
) -> tuple[int, int]:
    """Choose the size of a frame under a pixel budget, as the Qwen2-VL processor does.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        budget: Bounds and the factor of both sides.
        frames: Frames that share the budget, as Qwen3-VL's processor counts a clip.
        padded: Frames after padding, of which the bounds hold; None: ``frames``.

    Returns:
        (width, height) in pixels, multiples of ``budget.factor``, area within the budget and aspect ratio as close to
        the original as that allows. As there, sides far from square under a tight budget can leave the
        area out of bounds, because a side is never less than one factor.

    Raises:
        ValueError: On sides that are not positive, or an aspect ratio above 200.
    """
    check_sides(width, height)
    factor, area = budget.factor, frames * height * width
    # Python's round (half to even) and the order of the divisions are the processor's, which recomputes
    # the size and both must agree to the pixel.
    new_width, new_height = round(width / factor) * factor, round(height / factor) * factor
    pixels = (padded or frames) * new_width * new_height
    if pixels > budget.max_pixels:
        shrink = math.sqrt(area / budget.max_pixels)
        new_width = max(factor, math.floor(width / shrink / factor) * factor)
        new_height = max(factor, math.floor(height / shrink / factor) * factor)
    elif pixels < budget.min_pixels:
        grow = math.sqrt(budget.min_pixels / area)
        new_width = math.ceil(width * grow / factor) * factor
        new_height = math.ceil(height * grow / factor) * factor
    return new_width, new_height


def fit_within(width: int, height: int, max_width: int, max_height: int, factor: int = 1) -> tuple[int, int]:
    """Scale a frame down into a box, without enlarging it; sides become the nearest multiples of ``factor`` that fit.

    Raises:
        ValueError: On sides that are not positive or a box smaller than one factor.
    """
    if min(width, height) < 1:
        raise ValueError(f"width and height must be positive, got {width}x{height}")
    if max_width < factor or max_height < factor:
        raise ValueError(f"a {max_width}x{max_height} box cannot hold one {factor}x{factor} cell")
    scale = min(1.0, max_width / width, max_height / height)
    return _round_side(width * scale, max_width, factor), _round_side(height * scale, max_height, factor)


def _round_side(side: float, limit: int, factor: int) -> int:
    return min(max(factor, round(side / factor) * factor), limit // factor * factor)


def check_sides(width: int, height: int) -> None:
    """Raise ValueError for sides that Qwen2-VL's processor refuses."""
    if min(width, height) < 1 or max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise ValueError(f"a {width}x{height} frame: sides must be positive, their ratio at most {MAX_ASPECT_RATIO}")


def resize(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """Resize an RGB uint8 picture (height, width, 3) with an antialiased bicubic filter, as image processors do.

    torch's filter differs from PIL's in one value of a few hundred, by 1 or 2 of 255, and takes an eighth of its time.
    A picture that has the size already is returned itself.

    Raises:
        ValueError: The array is no RGB uint8 picture, or a side is not positive.
    """
    if min(width, height) < 1 or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(
            f"expected a uint8 array (height, width, 3) and positive sides, got {image.dtype} {image.shape} and "
            f"{width}x{height}"
        )
    if image.shape[:2] == (height, width):
        return image
    # Imported here: it takes seconds, and frames that keep their size don't need it.
    from torch import from_numpy
    from torch.nn.functional import interpolate

    # torch adds the batch dimension: numpy's would have a stride of 0, and torch would turn the channels outermost.
    batch = from_numpy(np.require(image, requirements=("C", "W"))).unsqueeze(0).permute(0, 3, 1, 2)
    resized = interpolate(batch, size=(height, width), mode="bicubic", antialias=True)
    return np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy())


def crop(frame: Frame, box: tuple[int, int, int, int], size: tuple[int, int] | None = None) -> Frame:
    """Cut a region out of a whole frame.

    The region is recorded with the picture (``FrameRef.crop``), so SFT on the record trains on the same pixels.
    Other pictures that a tool makes are recorded as PNG files.

    Args:
        frame: From a store or a video.
        box: Left, top, right and bottom edge in the frame's own pixels, right and bottom not included.
        size: (width, height) in pixels to resize the region to; None leaves it as it is.

    Raises:
        TypeError: An edge is no whole number.
        ValueError: The region is empty or goes beyond the frame, or the frame is a crop itself.
    """
    left, top, right, bottom = (as_int(edge, "an edge of a crop's box") for edge in box)
    if not (0 <= left < right <= frame.width and 0 <= top < bottom <= frame.height):
        raise ValueError(f"no region of a frame of {frame.width} x {frame.height} pixels: {(left, top, right, bottom)}")
    if frame.crop is not None:
        raise ValueError("a crop can't be cropped again: crop the frame itself")
    image = frame.image[top:bottom, left:right].copy()
    if size is not None:
        image = resize(image, *size)
    return Frame.cropped(frame.index, frame.time, image, Crop((left, top, right, bottom), frame.width, frame.height))
