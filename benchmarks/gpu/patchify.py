"""uint8 frames to a Qwen model's patches on any device: the reference of what is to travel in place of float32 patches.

A picture stands for as many moments as a patch has (``temporal_patch_size``), each the same. Patches are in the order
of the image processor: the four that become one visual token beside each other.
"""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Patchifier:
    """Frames of one size to patches.

    Attributes:
        patch: Side of a patch in pixels.
        merge: Patches along a side of a visual token.
        moments: Moments that a patch stands for.
        mean: Of each channel, of pixels from 0 to 255; shape (3, 1, 1).
        std: Likewise.
    """

    patch: int
    merge: int
    moments: int
    mean: torch.Tensor
    std: torch.Tensor

    @classmethod
    def of(cls, processor: Any, device: str) -> "Patchifier":
        """As a Hugging Face image processor prepares pictures."""

        # As transformers does it: rescaling is part of mean and deviation (``image_processing_backends.py``).
        def channels(values: Any) -> torch.Tensor:
            return (torch.tensor(values) * (1.0 / processor.rescale_factor)).view(3, 1, 1).to(device)

        return cls(
            processor.patch_size,
            processor.merge_size,
            processor.temporal_patch_size,
            channels(processor.image_mean),
            channels(processor.image_std),
        )

    def __call__(self, frames: torch.Tensor) -> torch.Tensor:
        """The patches of frames.

        Args:
            frames: uint8, shape (frames, height, width, 3), on any device; sides are multiples of a visual token's.

        Returns:
            float32 on the patchifier's device, shape (frames * patches of a frame, 3 * moments * patch * patch).

        Raises:
            ValueError: A side isn't a multiple.
        """
        count, height, width, _ = frames.shape
        unit = self.patch * self.merge
        if height % unit or width % unit:
            raise ValueError(f"frames of {width}x{height}: both sides must be multiples of {unit}")
        pixels = frames.to(self.mean.device, non_blocking=True).permute(0, 3, 1, 2).float()
        pixels = (pixels - self.mean) / self.std
        rows, columns = height // unit, width // unit
        parts = pixels.view(count, 3, rows, self.merge, self.patch, columns, self.merge, self.patch)
        parts = parts.permute(0, 2, 5, 3, 6, 1, 4, 7)
        moments = parts.unsqueeze(6).expand(*parts.shape[:6], self.moments, self.patch, self.patch)
        return moments.reshape(-1, 3 * self.moments * self.patch**2)
