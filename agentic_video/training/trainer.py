"""verl's synchronous trainer, which also logs what the episodes did."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from verl.trainer.ppo.v1.replay_buffer import DAPO_FILTERED_REWARD_COUNTS_KEY
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from agentic_video.data.records import Record, write_record
from agentic_video.data.schema import VideoQA
from agentic_video.rewards.manager import REWARD_KEY_UNITS
from agentic_video.rollout.agent_loop import FINAL_OUTPUT
from agentic_video.rollout.trajectory import Trajectory
from agentic_video.video.retrieval_service import all_retrieval_stats
from agentic_video.video.service import all_store_stats

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
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        extras = [
            extra
            for tag, extra in zip(batch.tags, (getattr(one, "data", one) for one in data["extra_fields"]), strict=True)
            if not tag.get("is_padding", False) and extra[FINAL_OUTPUT]
        ]
        metrics.update(episode_metrics(extras))
        metrics["episode/reward_sampled"] = sampled_reward(
            [extra["reward_extra_info"]["reward"] for extra in extras],
            metrics.get(DAPO_FILTERED_REWARD_COUNTS_KEY, {}),
            self.config.actor_rollout_ref.rollout.n,
        )
        metrics.update(self._store_metrics())
        self._dump_episodes(extras)

    @staticmethod
    def _store_metrics() -> dict[str, float]:
        """Counters of the frame stores and of the retrievers of all nodes, added up."""
        total: Counter[str] = Counter()
        for name, nodes in (("frame_store", all_store_stats()), ("retrieval", all_retrieval_stats())):
            for stats in nodes:
                total.update({f"{name}/{key}": value for key, value in asdict(stats).items()})
        return {key: float(value) for key, value in total.items()}

    def _dump_episodes(self, extras: list[dict[str, Any]]) -> None:
        """Write some of the step's episodes to ``agentic_video.episodes_dir``, as trajectory records."""
        block = self.config.agentic_video
        if not block.get("episodes_dir") or not extras:
            return
        folder = Path(block.episodes_dir)
        folder.mkdir(parents=True, exist_ok=True)
        stride = max(1, len(extras) // max(1, block.episodes_per_step))
        provenance = {
            "source": "grpo",
            "step": self.global_steps,
            "experiment": self.config.trainer.experiment_name,
            "model": self.config.actor_rollout_ref.model.path,
        }
        with (folder / f"step_{self.global_steps:06d}.jsonl").open("w", encoding="utf-8") as file:
            for extra in extras[::stride][: block.episodes_per_step]:
                qa, trajectory = VideoQA.from_row(extra["video_qa"]), Trajectory.from_dict(extra["trajectory"])
                write_record(file, Record(qa, trajectory, extra["reward_extra_info"], provenance))


def sampled_reward(kept: Sequence[float], evicted: Mapping[float, int], group_size: int) -> float:
    """Mean reward over all groups that were sampled, those that dynamic sampling evicted included.

    Dynamic sampling drops the groups that are all right or all wrong, so the mean over the rest hides what was learnt.

    Args:
        kept: Rewards of the episodes that are trained on.
        evicted: Number of evicted groups by the ``reward_key`` (units of 1e-4) that their members share.
        group_size: Episodes a group.
    """
    total = sum(kept) + sum(key / REWARD_KEY_UNITS * count * group_size for key, count in evicted.items())
    return total / (len(kept) + sum(evicted.values()) * group_size)


def episode_metrics(extras: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over episodes of every key of their ``reward_extra_info``, as ``episode/<key>``."""
    values: dict[str, list[float]] = defaultdict(list)
    for extra in extras:
        for key, value in extra["reward_extra_info"].items():
            values[key].append(float(value))
    return {f"episode/{key}": float(np.mean(items)) for key, items in values.items()}
