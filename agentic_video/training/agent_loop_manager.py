"""verl's agent-loop workers, which process each distinct frame once.

A stock worker runs the image processor on all images of a trajectory twice, for every rollout (once for the score,
once for the batch). Here a frame's patches are kept, so that the rollouts of a group share them.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

import ray
import torch
from PIL import Image
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from agentic_video.training.agent_loop import FRAME_KEYS, VALIDATE

PATCH_CACHE_BYTES = 1 << 30
"""Most bytes of processed frames that one worker keeps."""

MAX_POSITIONS = 256
"""Trajectories whose position ids are kept between their score and their batch."""


class PatchCache:
    """What the image processor makes of frames, each distinct one once; least recently used ones go first.

    Args:
        image_processor: The model's image processor.
        max_bytes: Most bytes that are kept.
    """

    def __init__(self, image_processor: Any, max_bytes: int = PATCH_CACHE_BYTES):
        self._image_processor = image_processor
        self._max_bytes = max_bytes
        self._patches: OrderedDict[Hashable, tuple[torch.Tensor, torch.Tensor]] = OrderedDict()
        self._bytes = 0
        self.processed = 0

    def inputs(self, images: Sequence[Image.Image], keys: Sequence[Hashable]) -> dict[str, torch.Tensor]:
        """The processor's output for a sequence of images.

        Args:
            images: The images.
            keys: One key an image; equal keys mean equal images.

        Returns:
            ``pixel_values`` (patches, values a patch), ``image_grid_thw`` (images, 3) and ``images_seqlens`` (patches
            of each image), as verl's worker makes them; nothing at all for a sequence without images.
        """
        if not keys:
            return {}
        found = {key: self._patches[key] for key in keys if key in self._patches}
        missing = {key: image for key, image in zip(keys, images, strict=True) if key not in found}
        if missing:
            output = self._image_processor(images=list(missing.values()), return_tensors="pt")
            grids = output["image_grid_thw"]
            pieces = output["pixel_values"].split(grids.prod(dim=-1).tolist())
            for key, grid, piece in zip(missing, grids, pieces, strict=True):
                found[key] = (piece.clone(), grid)
            self.processed += len(missing)
        for key in keys:
            self._keep(key, found[key])
        grid_thw = torch.stack([found[key][1] for key in keys])
        return {
            "pixel_values": torch.cat([found[key][0] for key in keys]),
            "image_grid_thw": grid_thw,
            "images_seqlens": torch.repeat_interleave(grid_thw[:, 1] * grid_thw[:, 2], grid_thw[:, 0]),
        }

    def _keep(self, key: Hashable, entry: tuple[torch.Tensor, torch.Tensor]) -> None:
        if key in self._patches:
            self._patches.move_to_end(key)
            return
        self._patches[key] = entry
        self._bytes += entry[0].nbytes
        while self._bytes > self._max_bytes:
            _, (patches, _) = self._patches.popitem(last=False)
            self._bytes -= patches.nbytes


class VideoAgentLoopWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[name-defined]
    """verl's worker with a cache of processed frames."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._patch_cache = PatchCache(self.processor.image_processor)
        self._positions: OrderedDict[Hashable, torch.Tensor] = OrderedDict()

    async def _run_agent_loop(self, sampling_params: dict[str, Any], trajectory: dict[str, Any], **kwargs: Any) -> Any:
        # verl tells an agent loop nothing about validation.
        kwargs[VALIDATE] = bool(trajectory["validate"])
        return await super()._run_agent_loop(sampling_params, trajectory, **kwargs)

    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        # An episode is scored by its trajectory, which the last output holds whole. verl would pad all outputs to one
        # batch, which fails on position ids of several sections.
        await super()._compute_score(outputs[-1:], kwargs)

    def _compute_multi_modal_inputs(self, output: Any, input_ids: torch.Tensor) -> dict[str, Any]:
        data = output.multi_modal_data or {}
        if FRAME_KEYS not in data:
            return super()._compute_multi_modal_inputs(output, input_ids)
        inputs: dict[str, Any] = dict(self._patch_cache.inputs(data["images"], data[FRAME_KEYS]))
        # Its presence makes verl's position ids tell text from images; verl fills in the values.
        inputs["mm_token_type_ids"] = torch.zeros_like(input_ids)
        return inputs

    def _compute_position_ids(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, multi_modal_inputs: Any, *args: Any
    ) -> torch.Tensor:
        # Asked for twice for each trajectory, one call after the other: for the score and for the batch.
        grid = multi_modal_inputs.get("image_grid_thw")
        key = (input_ids.numpy().tobytes(), None if grid is None else grid.numpy().tobytes())
        found = self._positions.pop(key, None)
        if found is not None:
            multi_modal_inputs.pop("mm_token_type_ids", None)
            return found
        computed = super()._compute_position_ids(input_ids, attention_mask, multi_modal_inputs, *args)
        self._positions[key] = computed
        if len(self._positions) > MAX_POSITIONS:
            self._positions.popitem(last=False)
        return computed


class VideoAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager with our workers (``rollout.agent.agent_loop_manager_class``)."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(VideoAgentLoopWorker)
