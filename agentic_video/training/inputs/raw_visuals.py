"""Pixels of a sample's images and clips on their way from a data loader to the engine: bytes, not float32 patches.

Patches are eight times as large, and a loader's batches lie in shared memory; the engine makes them on its device, as
it makes those of rollouts. Two fields beside the sizes in ``multi_modal_inputs``, as few tensors as can be: a loader
needs a file of shared memory for each.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from agentic_video.training.inputs.model_inputs import clip_patches, image_patches
from agentic_video.types.frame import Clip
from agentic_video.types.message import Visual, frames_of

PIXELS = "raw_pixels"
"""All values, one image or frame after the other, uint8."""
SHAPES = "raw_shapes"
"""Of each image or clip (frames of a clip or 0 for an image, height, width), int64."""


def raw_visuals(shown: Sequence[Visual]) -> dict[str, torch.Tensor]:
    """The pixels of images and clips.

    Args:
        shown: In the order of their placeholders.

    Returns:
        ``PIXELS`` of shape (values,) and ``SHAPES`` of shape (images and clips, 3); nothing at all without any.
    """
    if not shown:
        return {}
    shapes = [
        [len(one.frames), *one.frames[0].image.shape[:2]] if isinstance(one, Clip) else [0, *one.image.shape[:2]]
        for one in shown
    ]
    pixels = np.concatenate([frame.image.reshape(-1) for frame in frames_of(shown)])
    return {PIXELS: torch.from_numpy(pixels), SHAPES: torch.tensor(shapes)}


def split_raw(inputs: Mapping[str, Any], count: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The fields of the first so many images and clips, and of the rest; both empty where there are none."""
    if PIXELS not in inputs:
        return {}, {}
    at = sum(_values(inputs)[:count])
    return (
        {PIXELS: inputs[PIXELS][:at], SHAPES: inputs[SHAPES][:count]},
        {PIXELS: inputs[PIXELS][at:], SHAPES: inputs[SHAPES][count:]},
    )


def with_patches_of_raw(
    processor: Any,
    inputs: Mapping[str, Any],
    device: str | int | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """A sequence's inputs as the model takes them.

    Args:
        processor: The model's.
        inputs: As they come from the loader, with the fields of :func:`raw_visuals` where there are images or clips.
        device: Where pixels are processed.
        dtype: Of the patches.

    Returns:
        The same without those fields, with ``pixel_values`` where there are images and ``pixel_values_videos`` where
        there are clips, of shape (patches, values of a patch), on the device.
    """
    rest = {name: value for name, value in inputs.items() if name not in (PIXELS, SHAPES)}
    if PIXELS not in inputs:
        return rest
    images: dict[str, np.ndarray] = {}
    clips: dict[str, np.ndarray] = {}
    pieces = np.split(inputs[PIXELS].numpy(), np.cumsum(_values(inputs))[:-1])
    for number, (piece, (moments, height, width)) in enumerate(zip(pieces, inputs[SHAPES].tolist(), strict=True)):
        if moments:
            clips[str(number)] = piece.reshape(moments, height, width, 3)
        else:
            images[str(number)] = piece.reshape(height, width, 3)
    made = {
        "pixel_values": image_patches(processor.image_processor, images, device),
        # a model without clips may have no processor for them
        "pixel_values_videos": clip_patches(processor.video_processor, clips, device) if clips else {},
    }
    return {name: torch.cat(list(some.values())).to(dtype) for name, some in made.items() if some} | rest


def _values(inputs: Mapping[str, Any]) -> list[int]:
    """How many values each image or clip has."""
    return [3 * max(1, moments) * height * width for moments, height, width in inputs[SHAPES].tolist()]
