"""Pixels of a sample as raw bytes, and as what the model's processor makes of them.

Rollouts, SFT and KTO share them, so that a recorded episode is trained on as its rollout would be. Positions and sizes
need no pixels and are made where an episode is played or read; patches, eight times as large as pixels, where they are
trained on. What they are is the model family's matter.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from agentic_video.families.registry import family_of
from agentic_video.training.inputs.references import IMAGES, SequenceImages
from agentic_video.types.frame import Clip
from agentic_video.types.message import Visual, frames_of

Device = str | int | torch.device
PIXELS = "raw_pixels"
"""A sample's values, one image or frame after the other, uint8: one tensor, as a loader needs a file for each."""
SHAPES = "raw_shapes"
"""Of each image or clip (frames of a clip or 0 for an image, height, width), int64."""
Pixels = Mapping[str, Mapping[str, torch.Tensor]]
"""Inputs of the model that are made of pixels, of each image and clip by its key."""


def visual_pixels(processor: Any, shown: Sequence[Visual]) -> Pixels:
    """Pixels of images and clips by their keys, each distinct one processed once."""
    frames = {visual.key: visual.image for visual in shown if not isinstance(visual, Clip)}
    clips = {visual.key: [frame.image for frame in visual.frames] for visual in shown if isinstance(visual, Clip)}
    return family_of(processor).pixels(processor, frames, clips)


def model_inputs(
    processor: Any, ids: torch.Tensor, shown: Sequence[Visual]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Positions and all inputs of one sequence at once, for checks and measurements."""
    family, pixels = family_of(processor), visual_pixels(processor, shown)
    sizes = family.sizes(processor, shown)
    made = family.joined([pixels[visual.key] for visual in shown])
    return family.positions(processor, ids, sizes), {**made, **sizes}


def reference_inputs(processor: Any, ids: torch.Tensor, images: SequenceImages) -> tuple[torch.Tensor, dict[str, Any]]:
    """Positions and inputs of one sequence whose images and clips travel as references; no inputs without any."""
    family = family_of(processor)
    sizes = family.sizes(processor, images.refs)
    return family.positions(processor, ids, sizes), {**sizes, IMAGES: images.pack()} if images.refs else {}


def raw_visuals(shown: Sequence[Visual]) -> dict[str, torch.Tensor]:
    """``PIXELS`` (values,) and ``SHAPES`` (images and clips, 3) of a sample; empty without any."""
    if not shown:
        return {}
    shapes = [
        [len(visual.frames), *visual.frames[0].image.shape[:2]]
        if isinstance(visual, Clip)
        else [0, *visual.image.shape[:2]]
        for visual in shown
    ]
    pixels = np.concatenate([frame.image.reshape(-1) for frame in frames_of(shown)])
    return {PIXELS: torch.from_numpy(pixels), SHAPES: torch.tensor(shapes)}


def split_raw(inputs: Mapping[str, Any], count: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The raw fields of the first ``count`` images and clips, and of the rest."""
    if PIXELS not in inputs:
        return {}, {}
    at = sum(_raw_values(inputs)[:count])
    return (
        {PIXELS: inputs[PIXELS][:at], SHAPES: inputs[SHAPES][:count]},
        {PIXELS: inputs[PIXELS][at:], SHAPES: inputs[SHAPES][count:]},
    )


def with_patches_of_raw(
    processor: Any, inputs: Mapping[str, Any], device: Device = "cpu", dtype: torch.dtype = torch.float32
) -> dict[str, Any]:
    """A sample's inputs with the model's pixels on the device instead of raw fields."""
    rest = {name: value for name, value in inputs.items() if name not in (PIXELS, SHAPES)}
    if PIXELS not in inputs:
        return rest
    images: dict[str, np.ndarray] = {}
    clips: dict[str, np.ndarray] = {}
    pieces = np.split(inputs[PIXELS].numpy(), np.cumsum(_raw_values(inputs))[:-1])
    for number, (piece, (moments, height, width)) in enumerate(zip(pieces, inputs[SHAPES].tolist(), strict=True)):
        if moments:
            clips[str(number)] = piece.reshape(moments, height, width, 3)
        else:
            images[str(number)] = piece.reshape(height, width, 3)
    family = family_of(processor)
    pixels = family.pixels(processor, images, clips, device)
    return converted(family.joined([pixels[str(number)] for number in range(len(pieces))]), dtype) | rest


def converted(pixels: Mapping[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Pixels with numbers of a type; whole numbers, such as patches' places, stay."""
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in pixels.items()}


def _raw_values(inputs: Mapping[str, Any]) -> list[int]:
    """Number of values of each image or clip."""
    return [3 * max(1, moments) * height * width for moments, height, width in inputs[SHAPES].tolist()]
