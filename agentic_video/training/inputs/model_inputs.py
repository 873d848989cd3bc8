"""What the model takes beside token ids: patches of images and clips, and positions of tokens.

Rollouts, SFT and KTO make them by the same functions, so that a recorded episode is trained on as its rollout would be.
Positions and sizes need no pixels: they are made where an episode is played or read, patches where they are trained on.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

from agentic_video.rollout.clips import ClipLike, clip_frames, seconds_per_patch, timed_positions
from agentic_video.types.frame import Clip, ImageRef, VideoRef
from agentic_video.types.message import Visual
from agentic_video.video.processor_rules import ProcessorRules, UnkeptSizeError, processor_rules


def image_sizes(rules: ProcessorRules, sizes: Sequence[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """What verl and the model want to know of images beside their patches.

    Args:
        rules: Of the model's processors.
        sizes: (width, height) of each image in pixels.

    Returns:
        ``image_grid_thw`` (images, 3), sizes in patches: time, height, width; ``images_seqlens`` (images,), patches of
        each. Nothing at all without images.

    Raises:
        UnkeptSizeError: The model's processor would resize one.
    """
    if not sizes:
        return {}
    for size in set(sizes):
        rules.require_kept(*size)
    grid = torch.tensor([rules.grid(*size) for size in sizes])
    return {"image_grid_thw": grid, "images_seqlens": grid[:, 1] * grid[:, 2]}


def visual_sizes(processor: Any, shown: Sequence[Visual | ImageRef | VideoRef]) -> dict[str, torch.Tensor]:
    """What verl and the model want to know of images and clips beside their patches.

    Args:
        processor: The model's.
        shown: Images and clips, in the order of their placeholders.

    Returns:
        See :func:`image_sizes`, and with clips: ``video_grid_thw`` (clips, 3), sizes in patches, ``second_per_grid_ts``
        (clips,), seconds from one temporal patch to the next, and among ``images_seqlens`` the patches of each moment.

    Raises:
        UnkeptSizeError: The model's processor would resize one.
    """
    rules = processor_rules(processor)
    clips = [one for one in shown if isinstance(one, Clip | VideoRef)]
    images = [(one.width, one.height) for one in shown if not isinstance(one, Clip | VideoRef)]
    sizes = image_sizes(rules, images)
    return joined_sizes(sizes, clip_sizes(rules, clips)) if clips else sizes


def clip_sizes(rules: ProcessorRules, clips: Sequence[ClipLike]) -> dict[str, torch.Tensor]:
    """Of clips: ``video_grid_thw`` and ``second_per_grid_ts``; see :func:`visual_sizes`."""
    for clip in clips:
        rules.require_kept(clip.width, clip.height, clip_frames(clip))
    grids = [rules.grid(clip.width, clip.height, clip_frames(clip)) for clip in clips]
    seconds = [seconds_per_patch(clip.times) for clip in clips]
    return {
        "video_grid_thw": torch.tensor(grids),
        "second_per_grid_ts": torch.tensor(seconds, dtype=torch.float64),
    }


def joined_sizes(images: Mapping[str, torch.Tensor], clips: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What there is of a sequence's images and of its clips, as that of the sequence."""
    moments = seqlens(clips["video_grid_thw"])
    lengths = [images["images_seqlens"], moments] if "images_seqlens" in images else [moments]
    return {**images, **clips, "images_seqlens": torch.cat(lengths)}


def seqlens(grid: torch.Tensor) -> torch.Tensor:
    """Patches of each moment of images or clips, whose sizes (time, height, width) have the shape (count, 3)."""
    return torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0])


def clip_patches(
    video_processor: Any,
    clips: Mapping[str, Sequence[np.ndarray] | np.ndarray],
    device: str | int | torch.device = "cpu",
) -> dict[str, torch.Tensor]:
    """What the video processor makes of clips, on a device.

    Args:
        video_processor: The model's.
        clips: For each, its frames as RGB uint8 arrays of shape (height, width, 3), by key.
        device: Where they are processed.

    Returns:
        Float32 patches of shape (patches, values of a patch) on the device, by key.

    Raises:
        UnkeptSizeError: The processor resized one.
    """
    if not clips:
        return {}
    tensors = [
        torch.stack([torch.tensor(frame, device=device).permute(2, 0, 1) for frame in frames])
        for frames in clips.values()
    ]
    output = video_processor(
        videos=tensors,
        do_sample_frames=False,
        input_data_format="channels_first",
        return_tensors="pt",
        device=device,
    )
    _check_grids(output["video_grid_thw"], [one.shape for one in tensors], video_processor.patch_size)
    pieces = output["pixel_values_videos"].split(output["video_grid_thw"].prod(dim=-1).tolist())
    return dict(zip(clips, pieces, strict=True))


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

    Raises:
        UnkeptSizeError: The processor resized one.
    """
    if not images:
        return {}
    # Arrays in Ray's shared memory are read-only, of which torch warns.
    tensors = [torch.tensor(image, device=device).permute(2, 0, 1) for image in images.values()]
    output = image_processor(images=tensors, return_tensors="pt", device=device)
    _check_grids(output["image_grid_thw"], [one.shape for one in tensors], image_processor.patch_size)
    pieces = output["pixel_values"].split(output["image_grid_thw"].prod(dim=-1).tolist())
    return dict(zip(images, pieces, strict=True))


def _check_grids(grids: torch.Tensor, shapes: Sequence[Sequence[int]], patch: int) -> None:
    """Make sure that a processor has left pictures, whose last two dimensions are height and width, as they were."""
    for grid, shape in zip(grids.tolist(), shapes, strict=True):
        height, width = shape[-2:]
        if [grid[1] * patch, grid[2] * patch] != [height, width]:
            raise UnkeptSizeError(
                f"the model's processor made {grid[2] * patch}x{grid[1] * patch} of a picture of {width}x{height} "
                "pixels: the engine would resize it differently"
            )


def with_token_types(inputs: Mapping[str, Any], ids: torch.Tensor) -> dict[str, Any]:
    """Image inputs with the key whose presence makes verl's positions tell text from images.

    verl fills in the values, and takes the key away.
    """
    return {**inputs, "mm_token_type_ids": torch.zeros_like(ids)}


def rope_positions(processor: Any, ids: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Positions of a sequence's tokens, equal to those that verl's agent-loop worker computes for a rollout.

    verl's own method, which takes many times as long, is asked only where clips are labelled with times.

    Args:
        processor: The model's, with verl's ``get_rope_index``.
        ids: Shape (tokens,).
        inputs: With ``image_grid_thw`` where there are images, ``video_grid_thw`` and ``second_per_grid_ts`` where
            there are clips.

    Returns:
        Shape (4, tokens).
    """
    if "video_grid_thw" not in inputs or not processor_rules(processor).clip_total:
        return _timed_positions(processor, ids, inputs)
    rows = ids.unsqueeze(0)
    worker: Any = SimpleNamespace(processor=processor)  # all that verl's method asks of its worker
    positions: torch.Tensor = AgentLoopWorker._compute_position_ids(
        worker, rows, torch.ones_like(rows), with_token_types(inputs, rows)
    )
    return positions.squeeze(0)


def _timed_positions(processor: Any, ids: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    vision = processor.config.vision_config
    images, clips, seconds = (
        inputs[name].tolist() if name in inputs else []
        for name in ("image_grid_thw", "video_grid_thw", "second_per_grid_ts")
    )
    places = timed_positions(
        ids.numpy(),
        images,
        [(grid, step * vision.tokens_per_second) for grid, step in zip(clips, seconds, strict=True)],
        image_token=processor.image_token_id,
        video_token=processor.video_token_id,
        merge=vision.spatial_merge_size,
    )
    return torch.from_numpy(np.concatenate([np.arange(len(ids))[None], places]))


def visual_patches(processor: Any, shown: Sequence[Visual]) -> dict[str, torch.Tensor]:
    """Patches of images and clips by their keys, each distinct one processed once; see :func:`model_inputs`."""
    frames = {one.key: one.image for one in shown if not isinstance(one, Clip)}
    clips = {one.key: [frame.image for frame in one.frames] for one in shown if isinstance(one, Clip)}
    return {
        **image_patches(processor.image_processor, frames),
        **(clip_patches(processor.video_processor, clips) if clips else {}),
    }


def pixels_of(
    shown: Sequence[Visual | ImageRef | VideoRef], patches: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The patches of a sequence as the model takes them.

    Args:
        shown: Images and clips, in the order of their placeholders.
        patches: By their keys.

    Returns:
        ``pixel_values`` where there are images, ``pixel_values_videos`` where there are clips.
    """
    videos = [patches[one.key] for one in shown if isinstance(one, Clip | VideoRef)]
    images = [patches[one.key] for one in shown if not isinstance(one, Clip | VideoRef)]
    pixels = {"pixel_values": images, "pixel_values_videos": videos}
    return {name: torch.cat(pieces) for name, pieces in pixels.items() if pieces}


def model_inputs(
    processor: Any, ids: torch.Tensor, shown: Sequence[Visual]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """All at once for one sequence, as a rollout has them when it is trained on: for checks and measurements, while a
    job makes patches by the batch, on its device.

    Args:
        processor: The model's, with verl's ``get_rope_index``.
        ids: Shape (tokens,).
        shown: The images and clips in the order of their placeholders.

    Returns:
        Positions of shape (4, tokens), and see :func:`visual_sizes` and :func:`pixels_of`.
    """
    inputs = visual_sizes(processor, shown)
    positions = rope_positions(processor, ids, inputs)
    return positions, {**pixels_of(shown, visual_patches(processor, shown)), **inputs}
