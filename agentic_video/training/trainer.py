"""verl's synchronous trainer, which also logs what the episodes did."""

from collections import defaultdict
from typing import Any

import numpy as np
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

TRAINER_MODE = "agentic_video"


@register_trainer(TRAINER_MODE)
class VideoAgentTrainer(PPOTrainerSync):
    """``PPOTrainerSync`` plus the mean of every ``reward_extra_info`` key, as ``episode/<key>``."""

    def __init__(self, config: DictConfig):
        # Everything in verl that asks for the mode must hear that this is the synchronous trainer.
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        metrics.update(self._episode_metrics(batch))

    @staticmethod
    def _episode_metrics(batch: Any) -> dict[str, float]:
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        values: dict[str, list[float]] = defaultdict(list)
        for tag, extra in zip(batch.tags, data["extra_fields"].tolist(), strict=True):
            if tag.get("is_padding", False):
                continue
            for key, value in extra.get("reward_extra_info", {}).items():
                values[key].append(float(value))
        return {f"episode/{key}": float(np.mean(items)) for key, items in values.items()}
