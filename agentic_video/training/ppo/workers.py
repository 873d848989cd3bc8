"""verl's actor workers, which heed two keys that verl has and doesn't read."""

import os
from typing import TYPE_CHECKING, Any

import torch
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.single_controller.base.decorator import Dispatch, register
from verl.workers.engine_workers import ActorRolloutRefWorker

from agentic_video.training.engines.actor import freeze_vision
from agentic_video.training.engines.process_group import PATIENCE_ENV, join_ray_group

# The mixin goes before one of verl's workers; only type checkers see it as one itself.
_Base: Any = ActorRolloutRefWorker if TYPE_CHECKING else object


class _ActorWorker(_Base):
    """Heeds ``actor_rollout_ref.nccl_timeout`` and ``actor.freeze_vision_tower``."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[attr-defined]
    def init_model(self) -> None:
        if seconds := self.config.get("nccl_timeout"):
            os.environ[PATIENCE_ENV] = str(seconds)
        join_ray_group()
        super().init_model()
        if getattr(self, "actor", None) is not None and self.config.actor.get("freeze_vision_tower", False):
            count = freeze_vision(self.actor.engine.module)
            print(f"vision tower frozen: {count} weights are not trained", flush=True)


class VideoActorWorker(_ActorWorker, ActorRolloutRefWorker):
    """verl's worker of actor, rollout and reference."""


class VideoDetachWorker(_ActorWorker, DetachActorWorker):
    """verl's worker of the trainer with separate GPUs for rollouts."""

    @property
    def copy_handler(self) -> Any:
        """Save the weights between a step's updates as copies: verl's are overwritten where weights are offloaded."""
        save = super().copy_handler
        return _save_copies if self.config.actor.strategy == "fsdp2" else save


def _save_copies(model: torch.nn.Module) -> Any:
    from verl.utils.fsdp_utils import fsdp2_sharded_save_to_cpu

    state, spec = fsdp2_sharded_save_to_cpu(model)
    live = {name: getattr(weight, "_local_tensor", weight).data_ptr() for name, weight in model.named_parameters()}
    copied = {
        name: (saved.clone() if saved.data_ptr() == live[name] else saved, placement)
        for name, (saved, placement) in state.items()
    }
    return copied, spec
