"""verl's trainers, which also log what the episodes did."""

from typing import TYPE_CHECKING, Any, ClassVar

import ray
from omegaconf import DictConfig, open_dict
from verl.trainer.ppo.v1.replay_buffer import DAPO_FILTERED_REWARD_COUNTS_KEY
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from agentic_video.config.features import TRAINER_MODES
from agentic_video.config.settings import settings_of
from agentic_video.report.collapse import WARNING, CollapseWatch
from agentic_video.report.format_alarm import FormatAlarm
from agentic_video.training.logs.episode_log import (
    EpisodeWriter,
    StoreMetrics,
    engine_counters,
    episode_metrics,
    final_extras,
    groups_alike,
    record_of,
    sampled_reward,
    watched_validation,
)
from agentic_video.training.logs.metrics import GroupNames, group_metrics
from agentic_video.training.logs.pictures import log_pictures
from agentic_video.training.logs.run_watch import RunWatch, end_process, run_actors
from agentic_video.training.loop.credit import BY_TURN
from agentic_video.training.loop.outputs import REWARDS
from agentic_video.training.loop.router import client_of, packaged_path
from agentic_video.training.loop.untrained import Untrained
from agentic_video.training.ppo.filtered_groups import LimitedDrops
from agentic_video.training.ppo.look_ahead import LookAhead
from agentic_video.training.ppo.restored import Restored
from agentic_video.training.ppo.steps import take_epochs
from agentic_video.training.ppo.updates import EvenUpdates
from agentic_video.training.ppo.validation import WithGreedy, validation_batch
from agentic_video.training.seams.patches import STALL_SECONDS

SURPLUS = "training/filter_groups/discarded_surplus_samples"
"""verl's count of a step's groups with a signal that were more than a batch."""

# The mixin goes before one of verl's trainers; only type checkers see it as one itself.
_Base: Any = PPOTrainer if TYPE_CHECKING else object


class EpisodeLog(_Base):
    """What episodes did, logged by any of verl's trainers that it is mixed into.

    Logged are the mean of every ``reward_extra_info`` key, as ``episode/<key>``; the figures of each data source and
    class (:mod:`agentic_video.training.logs.metrics`), in training and in validation; the counters of frame stores,
    retrievers and engines; and some episodes of each validation as pictures.

    Attributes:
        verl_mode: What verl calls the trainer that this is mixed into.
        group_names: Names of data sources and classes in the log.
        stores: The counters of frame stores and retrievers.
        watch: Looks for signs that the run collapses.
        format_alarm: Looks whether the first episodes keep the format.
        writer: Writes some of each step's episodes as records, and what those of validations earned.
    """

    verl_mode: ClassVar[str]
    val_dataloader: Any

    def __init__(self, config: DictConfig):
        with open_dict(config):
            # Everything in verl that asks for the mode must hear which of its trainers this is.
            config.trainer.v1.trainer_mode = self.verl_mode
            # Here, in the process that makes the router: packages may lie elsewhere on the node of the launcher.
            rollout = config.actor_rollout_ref.rollout
            rollout.router_config_path = packaged_path(rollout.get("router_config_path"))
            if config.agentic_video.get("credit", "trajectory") == "turn":
                config.algorithm.adv_estimator = BY_TURN
        super().__init__(config)
        self.group_names = GroupNames()
        self.stores = StoreMetrics()
        self.watch = CollapseWatch()
        self.format_alarm = FormatAlarm(settings_of(config).log.format_alarm_after)
        self.writer = EpisodeWriter.of(config)

    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()
        buffer.stall_seconds = float(self.config.agentic_video.get("stall_seconds", STALL_SECONDS))
        return buffer

    def _init_dataloader(self) -> None:
        if self.config.data.get("val_batch_size") is None and self.config.trainer.device != "cpu":
            self.config.data.val_batch_size = validation_batch(self.config)
        super()._init_dataloader()
        if not self.steps_per_epoch:
            raise ValueError(
                f"data.train_files: {len(self.train_dataset)} usable rows don't fill a batch of "
                f"data.train_batch_size={self.config.data.train_batch_size} "
                f"(data.train_max_samples={self.config.data.get('train_max_samples', -1)})"
            )
        take_epochs(self)
        if self.config.agentic_video.get("validate_greedy", False):
            self.val_dataloader = WithGreedy(self.val_dataloader, self.config.actor_rollout_ref.rollout.val_kwargs.n)

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """verl's training, which ends when one of its nodes or processes does."""
        watch = RunWatch(ray.nodes, run_actors, end_process)
        try:
            return super().fit(*args, **kwargs)
        finally:
            watch.stop()

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        episodes = final_extras(batch)
        metrics.update(episode_metrics(episodes))
        metrics.update(group_metrics(episodes, "train", self.group_names))
        if self.config.actor_rollout_ref.rollout.n > 1:  # one rollout alone is compared with nothing
            metrics["episode/groups_alike"] = groups_alike(episodes)
        metrics["episode/reward_sampled"] = sampled_reward(
            [episode[REWARDS]["reward"] for episode in episodes],
            metrics.get(DAPO_FILTERED_REWARD_COUNTS_KEY, {}),
            self.config.actor_rollout_ref.rollout.n,
            int(metrics.get(SURPLUS, 0)),
        )
        metrics.update(self.stores.step())
        metrics.update(engine_counters(one for each in self._rollout_server_managers() for one in each.server_handles))
        signs, new = self.watch.step(self.global_steps, metrics)
        metrics.update(signs)
        alarm, said = self.format_alarm.step((one[REWARDS].get("format", 1.0), one["trajectory"]) for one in episodes)
        metrics.update(alarm)
        for text in [*new, *filter(None, [said])]:
            print(f"{WARNING} step {self.global_steps}: {text}", flush=True)
        self.writer.write(self.global_steps, episodes)

    def _validate(self) -> dict[str, float]:
        with watched_validation(self) as episodes:
            metrics: dict[str, float] = super()._validate()
        metrics.update(group_metrics(episodes, "val", self.group_names))
        self.writer.write_validation(self.global_steps, episodes)
        settings = settings_of(self.config)
        records = [record_of(episode) for episode in episodes]
        count = settings.log.validation_pictures
        log_pictures(records, count, self.logger.logger, self.global_steps, settings.frame_store)
        return metrics


@register_trainer(TRAINER_MODES["sync"])
class VideoAgentTrainer(EpisodeLog, Untrained, EvenUpdates, LimitedDrops, LookAhead, PPOTrainerSync):
    """verl's synchronous trainer: each batch is played with the weights that it is trained on."""

    verl_mode = "sync"

    def get_llm_client(self) -> Any:
        """See verl's."""
        return client_of(self.llm_server_manager)


@register_trainer(TRAINER_MODES["colocate_async"])
class VideoAgentTrainerColocateAsync(
    EpisodeLog, Untrained, EvenUpdates, LimitedDrops, Restored, PPOTrainerColocateAsync
):
    """verl's trainer that plays a batch ahead on the same GPUs; unfinished episodes go on with newer weights."""

    verl_mode = "colocate_async"


@register_trainer(TRAINER_MODES["separate_async"])
class VideoAgentTrainerSeparateAsync(
    EpisodeLog, Untrained, EvenUpdates, LimitedDrops, Restored, PPOTrainerSeparateAsync
):
    """verl's trainer with GPUs of their own for episodes, which are played while others are trained on."""

    verl_mode = "separate_async"
