"""Inputs of Qwen-VL's models along with token ids: patches of images and clips, their sizes, and their seconds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from agentic_video.families.base import Shown, UnkeptSizeError, clip_frames
from agentic_video.families.qwen_vl_clips import seconds_per_patch
from agentic_video.families.qwen_vl_sizes import GridRules
from agentic_video.types.frame import Clip, ClipRef, VideoRef

Device = str | int | torch.device


def sizes_of(rules: GridRules, shown: Sequence[Shown]) -> dict[str, torch.Tensor]:
    """Sizes of images and clips, given in the order of their placeholders.

    Returns:
        With images ``image_grid_thw`` (images, 3), in patches: time, height, width. With clips ``video_grid_thw``
        (clips, 3), and ``second_per_grid_ts`` (clips,), seconds from one temporal patch to the next. With either
        ``images_seqlens``, patches of each image, then of each clip's moments.
    """
    for visual in shown:
        rules.require_kept(visual.width, visual.height, clip_frames(visual))
    clips = [visual.times for visual in shown if isinstance(visual, Clip | ClipRef | VideoRef)]
    grids: dict[bool, list[tuple[int, int, int]]] = {False: [], True: []}
    for visual in shown:
        frames = clip_frames(visual)
        grids[frames > 0].append(rules.grid(visual.width, visual.height, frames))
    names = {"image_grid_thw": grids[False], "video_grid_thw": grids[True]}
    sizes = {name: torch.tensor(some) for name, some in names.items() if some}
    if clips:
        sizes["second_per_grid_ts"] = torch.tensor([seconds_per_patch(times) for times in clips], dtype=torch.float64)
    lengths = [_seqlens(sizes[name]) for name in names if name in sizes]
    return {**sizes, "images_seqlens": torch.cat(lengths)} if lengths else {}


def _seqlens(grid: torch.Tensor) -> torch.Tensor:
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


def in_one_kind(
    inputs: Mapping[str, Any], ids: Sequence[int], image_token: int, video_token: int, merge: int
) -> dict[str, Any]:
    """The inputs of a sequence with its clips among its images, as images of several moments.

    Placeholders, patches and sizes of clips are put among those of the images; ``merge`` patches are a side of a visual
    token. The model's hidden states are the same: a placeholder's own embedding is never read, positions were made
    before, and the loss is taken on no placeholder.
    """
    kinds = {
        image_token: _pieces(inputs, "image_grid_thw", "pixel_values"),
        video_token: _pieces(inputs, "video_grid_thw", "pixel_values_videos"),
    }
    grids, patches = [], []
    at = 0
    while at < len(ids):
        if ids[at] not in kinds:
            at += 1
            continue
        token = ids[at]
        grid, pixels = next(kinds[token])
        grids.append(grid)
        patches.append(pixels)
        # A clip's placeholders may lie in several runs, with timestamps in between.
        left = len(pixels) // merge**2
        while left:
            left -= ids[at] == token
            at += 1
    clips = ("video_grid_thw", "pixel_values_videos", "second_per_grid_ts")
    rest = {name: value for name, value in inputs.items() if name not in clips}
    grid = torch.stack(grids)
    return {**rest, "pixel_values": torch.cat(patches), "image_grid_thw": grid, "images_seqlens": _seqlens(grid)}


def one_moment(grids: torch.Tensor) -> torch.Tensor:
    """Sizes in patches (pictures, 3) with each moment of a clip as a picture of its own."""
    made = torch.repeat_interleave(grids, grids[:, 0], 0)
    made[:, 0] = 1
    return made


def _pieces(inputs: Mapping[str, Any], grid: str, pixels: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Size and patches of each image or clip."""
    if grid not in inputs:
        return iter(())
    return iter(zip(inputs[grid], inputs[pixels].split(inputs[grid].prod(-1).tolist()), strict=True))
