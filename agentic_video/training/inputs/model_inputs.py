"""Inputs of the model along with token ids: patches of images and clips, their sizes, and positions of tokens.

Rollouts, SFT and KTO share them, so that a recorded episode is trained on as its rollout would be. Positions and sizes
need no pixels and are made where an episode is played or read; patches, eight times as large as pixels, where they are
trained on.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

from agentic_video.rollout.clips import clip_frames, seconds_per_patch, timed_positions
from agentic_video.types.frame import Clip, ImageRef, VideoRef
from agentic_video.types.message import Visual, frames_of
from agentic_video.video.processor_rules import ProcessorRules, UnkeptSizeError, processor_rules

Device = str | int | torch.device
PIXELS = "raw_pixels"
"""A sample's values, one image or frame after the other, uint8: one tensor, as a loader needs a file for each."""
SHAPES = "raw_shapes"
"""Of each image or clip (frames of a clip or 0 for an image, height, width), int64."""


def image_sizes(rules: ProcessorRules, sizes: Sequence[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """``image_grid_thw`` (images, 3), in patches: time, height, width, and ``images_seqlens``, patches of each image.

    Both are missing without images, which are given by (width, height) in pixels.
    """
    if not sizes:
        return {}
    for size in set(sizes):
        rules.require_kept(*size)
    grid = torch.tensor([rules.grid(*size) for size in sizes])
    return {"image_grid_thw": grid, "images_seqlens": grid[:, 1] * grid[:, 2]}


def visual_sizes(processor: Any, shown: Sequence[Visual | ImageRef | VideoRef]) -> dict[str, torch.Tensor]:
    """Sizes of images and clips, given in the order of their placeholders: see :func:`image_sizes`.

    With clips also ``video_grid_thw`` (clips, 3), sizes in patches, ``second_per_grid_ts`` (clips,), seconds from one
    temporal patch to the next, and among ``images_seqlens`` the patches of each moment.
    """
    rules = processor_rules(processor)
    clips = [visual for visual in shown if isinstance(visual, Clip | VideoRef)]
    images = [(visual.width, visual.height) for visual in shown if not isinstance(visual, Clip | VideoRef)]
    sizes = image_sizes(rules, images)
    if not clips:
        return sizes
    for clip in clips:
        rules.require_kept(clip.width, clip.height, clip_frames(clip))
    grids = [rules.grid(clip.width, clip.height, clip_frames(clip)) for clip in clips]
    seconds = torch.tensor([seconds_per_patch(clip.times) for clip in clips], dtype=torch.float64)
    return joined_sizes(sizes, {"video_grid_thw": torch.tensor(grids), "second_per_grid_ts": seconds})


def joined_sizes(images: Mapping[str, torch.Tensor], clips: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Sizes of a sequence from those of its images and of its clips."""
    moments = seqlens(clips["video_grid_thw"])
    lengths = [images["images_seqlens"], moments] if "images_seqlens" in images else [moments]
    return {**images, **clips, "images_seqlens": torch.cat(lengths)}


def seqlens(grid: torch.Tensor) -> torch.Tensor:
    """Patches of each moment of images or clips, whose sizes (time, height, width) have the shape (count, 3)."""
    return torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0])


def clip_patches(
    video_processor: Any, clips: Mapping[str, Sequence[np.ndarray] | np.ndarray], device: Device = "cpu"
) -> dict[str, torch.Tensor]:
    """Float32 patches (patches, values) of clips as the model's video processor makes them, on a device, by key.

    The frames of each clip are RGB uint8 arrays of shape (height, width, 3).
    """
    if not clips:
        return {}
    tensors = [
        torch.stack([torch.tensor(frame, device=device).permute(2, 0, 1) for frame in frames])
        for frames in clips.values()
    ]
    options = {"do_sample_frames": False, "input_data_format": "channels_first", "return_tensors": "pt"}
    output = video_processor(videos=tensors, device=device, **options)
    patches, grids = output["pixel_values_videos"], output["video_grid_thw"]
    return _by_key(clips, tensors, patches, grids, video_processor.patch_size)


def image_patches(
    image_processor: Any, images: Mapping[str, np.ndarray], device: Device = "cpu"
) -> dict[str, torch.Tensor]:
    """Patches of images as the model's image processor makes them, on a device, by key; see :func:`clip_patches`."""
    if not images:
        return {}
    # Arrays in Ray's shared memory are read-only, of which torch warns.
    tensors = [torch.tensor(image, device=device).permute(2, 0, 1) for image in images.values()]
    output = image_processor(images=tensors, return_tensors="pt", device=device)
    patches, grids = output["pixel_values"], output["image_grid_thw"]
    return _by_key(images, tensors, patches, grids, image_processor.patch_size)


def _by_key(
    keys: Mapping[str, Any], visuals: Sequence[torch.Tensor], patches: torch.Tensor, grids: torch.Tensor, side: int
) -> dict[str, torch.Tensor]:
    """Patches by key, of a processor that has resized nothing."""
    for grid, visual in zip(grids.tolist(), visuals, strict=True):
        height, width = visual.shape[-2:]
        if [grid[1] * side, grid[2] * side] != [height, width]:
            raise UnkeptSizeError(
                f"the model's processor made {grid[2] * side}x{grid[1] * side} of a picture of {width}x{height} "
                "pixels: the engine would resize it differently"
            )
    return dict(zip(keys, patches.split(grids.prod(dim=-1).tolist()), strict=True))


def rope_positions(processor: Any, ids: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Positions (4, tokens) of a sequence's ids (tokens,), equal to those of verl's agent-loop worker.

    verl's own method, which takes many times as long, is called only where clips are labelled with times. ``inputs``
    are the :func:`visual_sizes`.
    """
    if "video_grid_thw" in inputs and processor_rules(processor).clip_total:
        rows = ids.unsqueeze(0)
        worker: Any = SimpleNamespace(processor=processor)  # all that verl's method needs of its worker
        given = {**inputs, "mm_token_type_ids": torch.zeros_like(rows)}  # verl fills the types of tokens in
        positions: torch.Tensor = AgentLoopWorker._compute_position_ids(worker, rows, torch.ones_like(rows), given)
        return positions.squeeze(0)
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
    """Patches of images and clips by their keys, each distinct one processed once."""
    frames = {visual.key: visual.image for visual in shown if not isinstance(visual, Clip)}
    clips = {visual.key: [frame.image for frame in visual.frames] for visual in shown if isinstance(visual, Clip)}
    return {
        **image_patches(processor.image_processor, frames),
        **(clip_patches(processor.video_processor, clips) if clips else {}),
    }


def pixels_of(
    shown: Sequence[Visual | ImageRef | VideoRef], patches: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """``pixel_values`` of a sequence's images and ``pixel_values_videos`` of its clips, where there are any.

    Both have the order of ``shown``, which is that of the placeholders.
    """
    videos = [patches[visual.key] for visual in shown if isinstance(visual, Clip | VideoRef)]
    images = [patches[visual.key] for visual in shown if not isinstance(visual, Clip | VideoRef)]
    pixels = {"pixel_values": images, "pixel_values_videos": videos}
    return {name: torch.cat(pieces) for name, pieces in pixels.items() if pieces}


def model_inputs(
    processor: Any, ids: torch.Tensor, shown: Sequence[Visual]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Positions (4, tokens) and all inputs of one sequence at once, for checks and measurements."""
    inputs = visual_sizes(processor, shown)
    positions = rope_positions(processor, ids, inputs)
    return positions, {**pixels_of(shown, visual_patches(processor, shown)), **inputs}


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
    """A sample's inputs with patches on the device (see :func:`pixels_of`) instead of raw fields."""
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
    made = {
        "pixel_values": image_patches(processor.image_processor, images, device),
        # a model without clips may have no processor for them
        "pixel_values_videos": clip_patches(processor.video_processor, clips, device) if clips else {},
    }
    return {name: torch.cat(list(some.values())).to(dtype) for name, some in made.items() if some} | rest


def _raw_values(inputs: Mapping[str, Any]) -> list[int]:
    """Number of values of each image or clip."""
    return [3 * max(1, moments) * height * width for moments, height, width in inputs[SHAPES].tolist()]
