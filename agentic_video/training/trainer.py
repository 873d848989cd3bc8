"""verl's synchronous trainer, which also logs what the episodes did."""

from typing import Any

from omegaconf import DictConfig, open_dict
from verl.trainer.ppo.v1.replay_buffer import DAPO_FILTERED_REWARD_COUNTS_KEY
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from agentic_video.config.settings import settings_of
from agentic_video.training.episode_log import (
    REWARDS,
    EpisodeWriter,
    StoreMetrics,
    episode_metrics,
    final_extras,
    record_of,
    sampled_reward,
    watched_validation,
)
from agentic_video.training.metrics import GroupNames, group_metrics
from agentic_video.training.pictures import log_pictures

TRAINER_MODE = "agentic_video"


@register_trainer(TRAINER_MODE)
class VideoAgentTrainer(PPOTrainerSync):
    """``PPOTrainerSync`` plus what episodes did.

    Logged are the mean of every ``reward_extra_info`` key, as ``episode/<key>``; the figures of each data source and
    class (:mod:`agentic_video.training.metrics`), in training and in validation; the counters of frame stores and
    retrievers; and some episodes of each validation as pictures.

    Attributes:
        group_names: Names of data sources and classes in the log.
        stores: The counters of frame stores and retrievers.
        writer: Writes some of each step's episodes as records.
    """

    def __init__(self, config: DictConfig):
        # Everything in verl that asks for the mode must hear that this is the synchronous trainer.
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)
        self.group_names = GroupNames()
        self.stores = StoreMetrics()
        self.writer = EpisodeWriter.of(config)

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        episodes = final_extras(batch)
        metrics.update(episode_metrics(episodes))
        metrics.update(group_metrics(episodes, "train", self.group_names))
        metrics["episode/reward_sampled"] = sampled_reward(
            [episode[REWARDS]["reward"] for episode in episodes],
            metrics.get(DAPO_FILTERED_REWARD_COUNTS_KEY, {}),
            self.config.actor_rollout_ref.rollout.n,
        )
        metrics.update(self.stores.step())
        self.writer.write(self.global_steps, episodes)

    def _validate(self) -> dict[str, float]:
        with watched_validation(self) as episodes:
            metrics: dict[str, float] = super()._validate()
        metrics.update(group_metrics(episodes, "val", self.group_names))
        settings = settings_of(self.config)
        records = [record_of(episode) for episode in episodes]
        count = settings.log.validation_pictures
        log_pictures(records, count, self.logger.logger, self.global_steps, settings.frame_store)
        return metrics
