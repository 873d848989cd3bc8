"""What an asynchronous trainer's checkpoint holds of rollouts: those that were trained on must not come back.

verl saves its transfer queue after a step's update, and clears the step's rollouts from it after that. When they are
loaded, their questions are no longer among those to choose from, so that nothing ever clears them: they would stay in
the memory of all later attempts, and in each of their checkpoints.
"""

from typing import TYPE_CHECKING, Any

import transfer_queue as tq

from agentic_video.training.loop.outputs import rollout_of

if TYPE_CHECKING:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

# The mixin goes before one of verl's trainers; only type checkers see it as one itself.
_Base: Any = PPOTrainer if TYPE_CHECKING else object


class Restored(_Base):
    """Clears what a checkpoint's own step was trained on, in either of verl's asynchronous trainers."""

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if not self.global_steps:  # nothing was loaded
            return
        for partition_id, tags in (tq.kv_list() or {}).items():
            prompts = {key for key, tag in tags.items() if tag.get("is_prompt", False)}
            trained = [key for key in tags if key not in prompts and rollout_of(key)[0] not in prompts]
            if trained:
                tq.kv_clear(keys=trained, partition_id=partition_id)
