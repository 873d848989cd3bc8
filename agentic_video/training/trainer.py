"""verl's synchronous trainer, which also logs what the episodes did."""

import math
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

from agentic_video.config.settings import settings_of
from agentic_video.training.agent_loop import FINAL_OUTPUT
from agentic_video.training.metrics import GroupNames, group_metrics, rates_since
from agentic_video.training.pictures import log_pictures
from agentic_video.training.reward_manager import REWARD_KEY_UNITS
from agentic_video.types.record import Record, write_record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory
from agentic_video.video.node_store import all_store_stats
from agentic_video.video.retrieval.node_retriever import all_retrieval_stats

TRAINER_MODE = "agentic_video"

REWARDS = "reward_extra_info"


@register_trainer(TRAINER_MODE)
class VideoAgentTrainer(PPOTrainerSync):
    """``PPOTrainerSync`` plus what episodes did.

    Logged are the mean of every ``reward_extra_info`` key, as ``episode/<key>``; the figures of each data source and
    class (:mod:`agentic_video.training.metrics`), in training and in validation; the counters of frame stores and
    retrievers; and some episodes of each validation as pictures.
    """

    def __init__(self, config: DictConfig):
        # Everything in verl that asks for the mode must hear that this is the synchronous trainer.
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"
        self._names = GroupNames()
        self._counters: dict[str, float] = {}
        super().__init__(config)

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        extras = final_extras(batch)
        metrics.update(episode_metrics(extras))
        metrics.update(group_metrics(extras, "train", self._names))
        metrics["episode/reward_sampled"] = sampled_reward(
            [extra[REWARDS]["reward"] for extra in extras],
            metrics.get(DAPO_FILTERED_REWARD_COUNTS_KEY, {}),
            self.config.actor_rollout_ref.rollout.n,
        )
        counters = self._store_metrics()
        metrics.update(counters)
        metrics.update(rates_since(counters, self._counters))
        self._counters = counters
        self._dump_episodes(extras)

    def _validate(self) -> dict[str, float]:
        # verl forgets the episodes of a validation before it returns their means.
        watched = WatchedSamples(self.replay_buffer)
        self.replay_buffer = watched  # type: ignore[assignment]  # all that a validation asks of it is to sample
        try:
            metrics: dict[str, float] = super()._validate()
        finally:
            self.replay_buffer = watched.buffer
        metrics.update(group_metrics(watched.extras, "val", self._names))
        self._log_pictures(watched.extras)
        return metrics

    def _log_pictures(self, extras: Sequence[Mapping[str, Any]]) -> None:
        """Log some of a validation's episodes as pictures (``agentic_video.log.validation_pictures``)."""
        settings = settings_of(self.config)
        records = [
            Record(VideoQA.from_row(extra["video_qa"]), Trajectory.from_dict(extra["trajectory"]), extra[REWARDS])
            for extra in extras
        ]
        count = settings.log.validation_pictures
        log_pictures(records, count, self.logger.logger, self.global_steps, settings.frame_store)

    @staticmethod
    def _store_metrics() -> dict[str, float]:
        """Counters of the frame stores and of the retrievers of all nodes, added up."""
        total: Counter[str] = Counter()
        for name, nodes in (("frame_store", all_store_stats()), ("retrieval", all_retrieval_stats())):
            for stats in nodes:
                total.update({f"{name}/{key}": value for key, value in asdict(stats).items()})
        return {key: float(value) for key, value in total.items()}

    def _dump_episodes(self, extras: list[dict[str, Any]]) -> None:
        """Write some of the step's groups to ``agentic_video.episodes_dir``, as trajectory records."""
        block = self.config.agentic_video
        if not block.get("episodes_dir") or not extras:
            return
        folder = Path(block.episodes_dir)
        folder.mkdir(parents=True, exist_ok=True)
        provenance = {
            "source": "grpo",
            "step": self.global_steps,
            "experiment": self.config.trainer.experiment_name,
            "model": self.config.actor_rollout_ref.model.path,
        }
        with (folder / f"step_{self.global_steps:06d}.jsonl").open("w", encoding="utf-8") as file:
            for extra in whole_groups(extras, block.episodes_per_step, self.global_steps):
                qa, trajectory = VideoQA.from_row(extra["video_qa"]), Trajectory.from_dict(extra["trajectory"])
                write_record(file, Record(qa, trajectory, extra[REWARDS], provenance))


def whole_groups(extras: Sequence[dict[str, Any]], episodes: int, turn: int) -> list[dict[str, Any]]:
    """As few whole groups as hold ``episodes`` episodes, evenly chosen.

    Args:
        extras: Episodes with their row (``video_qa``); those of one row are a group.
        episodes: How many are asked for; 0 or less: none.
        turn: Steps go round through the groups, so that it isn't always the first that is chosen.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for extra in extras:
        groups.setdefault(extra["video_qa"]["id"], []).append(extra)
    wanted = max(0, min(len(groups), math.ceil(episodes * len(groups) / len(extras)))) if extras else 0
    members = list(groups.values())
    chosen = {(turn + number * len(members) // wanted) % len(members) for number in range(wanted)}
    return [extra for number in sorted(chosen) for extra in members[number]]


class WatchedSamples:
    """A replay buffer during a validation, that keeps what the episodes left behind.

    Args:
        buffer: The replay buffer.

    Attributes:
        extras: ``extra_fields`` of the episodes so far.
    """

    def __init__(self, buffer: Any):
        self.buffer = buffer
        self.extras: list[dict[str, Any]] = []

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """As the buffer's own."""
        batch, metrics = self.buffer.sample(*args, **kwargs)
        self.extras += final_extras(batch)
        return batch, metrics


def final_extras(batch: Any) -> list[dict[str, Any]]:
    """``extra_fields`` of a batch's scored episodes, one each: of an episode with several outputs, the last one's."""
    if not batch.keys:
        return []
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    extras = (getattr(one, "data", one) for one in data["extra_fields"])
    return [
        extra
        for tag, extra in zip(batch.tags, extras, strict=True)
        if not tag.get("is_padding", False) and extra[FINAL_OUTPUT] and REWARDS in extra
    ]


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
        for key, value in extra[REWARDS].items():
            values[key].append(float(value))
    return {f"episode/{key}": float(np.mean(items)) for key, items in values.items()}
