"""What the model takes beside token ids: patches of images, and positions of tokens.

Rollouts, SFT and KTO make them here alike, so that a recorded episode is trained on as its rollout would be. Positions
and sizes need no pixels: a rollout's are made where it is played, its patches where they are trained on.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

from agentic_video.types.frame import Frame


def image_sizes(image_processor: Any, sizes: Sequence[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """What verl and the model want to know of images beside their patches.

    Args:
        image_processor: The model's: of Qwen2-VL's kind, which Qwen2.5-VL and Qwen3-VL have.
        sizes: (width, height) of each image in pixels.

    Returns:
        ``image_grid_thw`` (images, 3), sizes in patches: time, height, width; ``images_seqlens`` (images,), patches of
        each. Nothing at all without images.
    """
    if not sizes:
        return {}
    side = image_processor.patch_size
    bounds = {"min_pixels": image_processor.size.shortest_edge, "max_pixels": image_processor.size.longest_edge}
    grids = []
    for width, height in sizes:
        resized = smart_resize(height, width, side * image_processor.merge_size, **bounds)
        grids.append([1, resized[0] // side, resized[1] // side])
    grid = torch.tensor(grids)
    return {"image_grid_thw": grid, "images_seqlens": grid[:, 1] * grid[:, 2]}


def image_patches(
    image_processor: Any, images: Mapping[str, np.ndarray], device: str | int | torch.device = "cpu"
) -> dict[str, torch.Tensor]:
    """What the image processor makes of images, on a device.

    Args:
        image_processor: The model's.
        images: RGB uint8 arrays of shape (height, width, 3), by key.
        device: Where they are processed; as they are bytes until then, little is moved.

    Returns:
        Float32 patches of shape (patches, values of a patch) on the device, by key.
    """
    if not images:
        return {}
    # Arrays in Ray's shared memory are read-only, of which torch warns.
    tensors = [torch.tensor(image, device=device).permute(2, 0, 1) for image in images.values()]
    output = image_processor(images=tensors, return_tensors="pt", device=device)
    pieces = output["pixel_values"].split(output["image_grid_thw"].prod(dim=-1).tolist())
    return dict(zip(images, pieces, strict=True))


def image_inputs(patches: Sequence[torch.Tensor], grids: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Processed images as verl's worker hands them to the model.

    Args:
        patches: Patches of images in order, each of shape (patches, values of a patch).
        grids: Sizes of the same images in patches, each of shape (images, 3): time, height, width.

    Returns:
        ``pixel_values`` (patches, values of a patch), ``image_grid_thw`` (images, 3) and ``images_seqlens`` (patches of
        each image); nothing at all without images.
    """
    if not grids:
        return {}
    grid = torch.cat(list(grids))
    return {
        "pixel_values": torch.cat(list(patches)),
        "image_grid_thw": grid,
        "images_seqlens": torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0]),
    }


def with_token_types(inputs: Mapping[str, Any], ids: torch.Tensor) -> dict[str, Any]:
    """Image inputs with the key whose presence makes verl's positions tell text from images.

    verl fills in the values, and takes the key away.
    """
    return {**inputs, "mm_token_type_ids": torch.zeros_like(ids)}


def rope_positions(processor: Any, ids: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Positions of a sequence's tokens, as verl's agent-loop worker computes them for a rollout.

    Args:
        processor: The model's, with verl's ``get_rope_index``.
        ids: Shape (tokens,).
        inputs: With ``image_grid_thw``, where there are images.

    Returns:
        Shape (4, tokens).
    """
    rows = ids.unsqueeze(0)
    worker: Any = SimpleNamespace(processor=processor)  # all that verl's method asks of its worker
    positions: torch.Tensor = AgentLoopWorker._compute_position_ids(
        worker, rows, torch.ones_like(rows), with_token_types(inputs, rows)
    )
    return positions.squeeze(0)


def model_inputs(
    processor: Any, ids: torch.Tensor, frames: Sequence[Frame]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Positions and image inputs of a sequence, as a rollout has them when it is trained on.

    Args:
        processor: The model's, with verl's ``get_rope_index``.
        ids: Shape (tokens,).
        frames: The images in the order of their placeholders.

    Returns:
        Positions of shape (4, tokens), and see :func:`image_inputs`.
    """
    inputs = image_sizes(processor.image_processor, [(frame.width, frame.height) for frame in frames])
    positions = rope_positions(processor, ids, inputs)
    if frames:
        patches = image_patches(processor.image_processor, {frame.key: frame.image for frame in frames})
        inputs = {"pixel_values": torch.cat([patches[frame.key] for frame in frames]), **inputs}
    return positions, inputs
