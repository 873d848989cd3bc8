"""verl's agent-loop workers, which process each distinct frame once.

A stock worker runs the image processor on all images of a trajectory twice, for every rollout (once for the score,
once for the batch). Here a frame's patches are kept, so that the rollouts of a group share them.
"""

from typing import Any

import ray
import torch
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from agentic_video.training.agent_loop import FRAME_KEYS, VALIDATE
from agentic_video.training.model_inputs import PatchCache, PositionCache, with_token_types


class VideoAgentLoopWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[name-defined]
    """verl's worker with a cache of processed frames.

    Attributes:
        patches: The processed frames.
        positions: Positions of the rollouts that were scored and not put into a batch yet.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.patches = PatchCache(self.processor.image_processor)
        self.positions = PositionCache()

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
        return with_token_types(self.patches.inputs(data["images"], data[FRAME_KEYS]), input_ids)

    def _compute_position_ids(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, multi_modal_inputs: Any, *args: Any
    ) -> torch.Tensor:
        found = self.positions.take(input_ids, multi_modal_inputs)
        if found is not None:
            multi_modal_inputs.pop("mm_token_type_ids", None)
            return found
        computed = super()._compute_position_ids(input_ids, attention_mask, multi_modal_inputs, *args)
        self.positions.put(input_ids, multi_modal_inputs, computed)
        return computed


class VideoAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager with our workers (``rollout.agent.agent_loop_manager_class``)."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(VideoAgentLoopWorker)
