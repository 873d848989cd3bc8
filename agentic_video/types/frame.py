"""Frames as they flow through the package: with their pixels, and as references without."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Frame:
    """One picture of a video.

    Attributes:
        index: Position in presentation order, 0 for the first frame.
        time: Real presentation time in seconds, 0 for the first frame.
        image: RGB uint8 array of shape (height, width, 3).
    """

    index: int
    time: float
    image: np.ndarray

    @property
    def width(self) -> int:
        """Width in pixels."""
        return int(self.image.shape[1])

    @property
    def height(self) -> int:
        """Height in pixels."""
        return int(self.image.shape[0])
