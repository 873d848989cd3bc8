"""What the model takes beside token ids: patches of images, and positions of tokens.

Rollouts, SFT and KTO make them here alike, so that a recorded episode is trained on as its rollout would be.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from PIL import Image
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

from agentic_video.types.frame import Frame
from agentic_video.utils.resources import memory_limit, patch_cache_share

PATCH_CACHE_BYTES = 1 << 30
"""Most bytes of processed frames that one cache keeps, where nothing says more."""


def patch_cache_bytes(config: Any) -> int:
    """Most bytes of processed frames that an agent-loop worker keeps: its part of its own node's memory.

    Args:
        config: Of the run. verl deals its ``rollout.agent.num_workers`` workers out over the nodes in turn
            (``verl/experimental/agent_loop/agent_loop.py``, ``_init_agent_loop_workers``).
    """
    workers = -(-config.actor_rollout_ref.rollout.agent.num_workers // max(1, config.trainer.nnodes))
    return patch_cache_share(memory_limit(), workers)


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


class PatchCache:
    """What the image processor makes of frames, each distinct one once; least recently used ones go first.

    Args:
        image_processor: The model's image processor.
        max_bytes: Most bytes that are kept.

    Attributes:
        processed: How many images the processor was given so far.
        num_bytes: How many bytes are kept.
    """

    def __init__(self, image_processor: Any, max_bytes: int = PATCH_CACHE_BYTES):
        self._image_processor = image_processor
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Hashable, tuple[torch.Tensor, torch.Tensor]] = OrderedDict()
        self.num_bytes = 0
        self.processed = 0

    def __contains__(self, key: Hashable) -> bool:
        """Whether the frame of this key is kept."""
        return key in self._kept

    def inputs(self, images: Sequence[Image.Image], keys: Sequence[Hashable]) -> dict[str, torch.Tensor]:
        """The processor's output for a sequence of images.

        Args:
            images: The images.
            keys: One key an image; equal keys mean equal images.

        Returns:
            See :func:`image_inputs`.
        """
        if not keys:
            return {}
        found = {key: self._kept[key] for key in keys if key in self._kept}
        missing = {key: image for key, image in zip(keys, images, strict=True) if key not in found}
        if missing:
            output = self._image_processor(images=list(missing.values()), return_tensors="pt")
            grids = output["image_grid_thw"]
            pieces = output["pixel_values"].split(grids.prod(dim=-1).tolist())
            for key, grid, piece in zip(missing, grids, pieces, strict=True):
                found[key] = (piece.clone(), grid[None])
            self.processed += len(missing)
        for key in keys:
            self._keep(key, found[key])
        return image_inputs([found[key][0] for key in keys], [found[key][1] for key in keys])

    def _keep(self, key: Hashable, entry: tuple[torch.Tensor, torch.Tensor]) -> None:
        if key in self._kept:
            self._kept.move_to_end(key)
            return
        self._kept[key] = entry
        self.num_bytes += entry[0].nbytes
        while self.num_bytes > self._max_bytes:
            _, (patches, _) = self._kept.popitem(last=False)
            self.num_bytes -= patches.nbytes


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
        inputs: See :func:`image_inputs`.

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
    """Positions and image inputs of a sequence, as verl's agent-loop worker makes them for a rollout.

    Args:
        processor: The model's, with verl's ``get_rope_index``.
        ids: Shape (tokens,).
        frames: The images in the order of their placeholders.

    Returns:
        Positions of shape (4, tokens), and the image processor's output (see :func:`image_inputs`).
    """
    images = [Image.fromarray(frame.image) for frame in frames]
    inputs = PatchCache(processor.image_processor, max_bytes=0).inputs(images, range(len(images)))
    return rope_positions(processor, ids, inputs), inputs
