"""Dynamic sampling, as verl's replay buffer does it: what dropped groups earned, and how many a step may play."""

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf, open_dict

from agentic_video.training.loop.outputs import rewards_of, rollout_of
from agentic_video.training.loop.reward_manager import REWARD_KEY

if TYPE_CHECKING:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

MAX_BATCHES = "algorithm.filter_groups.max_num_gen_batches"
Reasons = tuple[set[str], set[str], set[str], "Counter[float]"]
"""Groups that are stale, alike, failed, and how many of the alike there are by what they earned: why verl's replay
buffer drops groups (``_terminal_eviction_reasons``)."""


def oversampled(config: Any) -> int:
    """How many questions a step plays beyond its batch (``agentic_video.oversample``).

    Dynamic sampling replaces the groups that teach nothing only when they are over, and a step waits for each such
    wave. With more questions from the start there are fewer waves; surplus groups are dropped. Without dynamic sampling
    none are played.
    """
    if not OmegaConf.select(config, "algorithm.filter_groups.enable"):
        return 0
    return round((float(config.agentic_video.get("oversample", 1.0)) - 1) * int(config.data.train_batch_size))


def name_by_reward(buffer: Any, partition_id: str, uids: set[str]) -> None:
    """Let verl's replay buffer count dropped groups by their mean reward, not by the metric that is alike in them.

    Where ``algorithm.filter_groups.metric`` is the accuracy, say, groups whose answers are all right go, though their
    rewards may differ; what was sampled is then known no more (``episode/reward_sampled``).

    Args:
        buffer: The replay buffer, with its snapshot of the transfer queue.
        partition_id: Which part of the queue.
        uids: Groups that it has classified just now.
    """
    classified = buffer._dapo_classification_cache[partition_id]
    dropped = {uid for uid in uids if classified.get(uid) is not None}
    if buffer.filter_groups_metric == REWARD_KEY or not dropped:
        return
    keys = [key for key in buffer.partitions[partition_id] if rollout_of(key)[0] in dropped]
    rewards: dict[str, dict[str, float]] = defaultdict(dict)
    for key, earned in rewards_of(keys, partition_id).items():
        uid, rollout = rollout_of(key)
        # of an episode with several outputs, each carries what the whole one earned
        rewards[uid][rollout] = float(earned[REWARD_KEY])
    for uid, of_group in rewards.items():
        classified[uid] = statistics.fmean(of_group.values())


@dataclass
class StepLimit:
    """How many groups a step may play and drop, and how many it has.

    Attributes:
        batch: Groups a batch.
        most: Groups that a step may play: ``algorithm.filter_groups.max_num_gen_batches`` batches.
        begun: Groups that a step begins with: its batch, and those of ``agentic_video.oversample``.
        step: Number of the step that is counted.
        dropped: Groups that it dropped because they were alike.
        failed: Groups that it dropped because they failed; they don't count as played.
        refilled: Groups that were played in place of others.
    """

    batch: int
    most: int
    begun: int
    step: int = -1
    dropped: int = 0
    failed: int = 0
    refilled: int = 0

    def at(self, step: int) -> "StepLimit":
        """Itself; the counts begin anew with each step."""
        if step != self.step:
            self.step, self.dropped, self.failed, self.refilled = step, 0, 0, 0
        return self

    @property
    def droppable(self) -> int:
        """Groups that it may still drop because they are alike, so that a batch will be left."""
        return max(0, self.most - self.batch - self.dropped)

    @property
    def left(self) -> int:
        """Groups that the step may still ask for."""
        return max(0, self.most + self.failed - self.begun - self.refilled)


def limit_drops(buffer: Any, max_batches: int, batch: int, begun: int) -> None:
    """Let a replay buffer play and drop so many groups a step and no more.

    Args:
        buffer: verl's replay buffer, which keeps the limit.
        max_batches: ``algorithm.filter_groups.max_num_gen_batches``: how many batches a step may play, its own
            included; 0 or less: as many as it takes.
        batch: Groups a batch.
        begun: Groups that a step begins with.
    """
    # verl's module is patched by way of this one
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

    if max_batches <= 0:
        return
    limit = buffer.step_limit = StepLimit(batch, max_batches * batch, begun)
    # Asynchronous ones keep as many in flight, whatever step they will be for; a user's own may have another way.
    if not isinstance(buffer, ReplayBuffer) or isinstance(buffer, ReplayBufferAsync):
        return
    refill = buffer.refill_fn

    def within_the_limit(groups: int) -> None:
        """verl asks for two groups for each that it drops; those beyond the limit would only be waited for."""
        if groups := min(groups, limit.left):
            limit.refilled += groups
            refill(groups)

    buffer.refill_fn = within_the_limit


def limit_of(buffer: Any, step: int) -> StepLimit | None:
    """A step's limit in a replay buffer, if it has one."""
    limit: StepLimit | None = getattr(buffer, "step_limit", None)
    return limit.at(step) if limit else None


def kept_alike(buffer: Any, step: int, partition_id: str, reasons: Reasons) -> Reasons:
    """Why groups are dropped, once a step has dropped as many alike ones as it may: the batch is filled with those that
    follow, as without dynamic sampling, and only what goes beyond it is dropped.

    A policy that has all of its questions right, or all wrong, has no other groups: the step would go on for ever.

    Args:
        buffer: verl's replay buffer, with its snapshot of the transfer queue.
        step: Number of the step.
        partition_id: Which part of the queue.
        reasons: What verl would drop.
    """
    limit = limit_of(buffer, step)
    stale, alike, failed, counts = reasons
    if limit is None or not alike:
        return reasons
    over = buffer.finished_keys[partition_id] | buffer.failure_keys[partition_id]
    room = max(0, limit.batch - len(over - stale - alike - failed))
    keepable = sorted(alike - stale - failed)
    kept = set(keepable[: min(room, max(0, len(keepable) - limit.droppable))])
    classified = buffer._dapo_classification_cache[partition_id]
    return stale, alike - kept, failed, counts - Counter(classified[uid] for uid in kept)


def with_signal_first(buffer: Any, partition_id: str, uids: set[str]) -> tuple[set[str], set[str]]:
    """Groups to choose a batch from: those that teach something, and those that are alike."""
    classified = buffer._dapo_classification_cache[partition_id]
    alike = {uid for uid in uids if classified.get(uid) is not None}
    return uids - alike, alike


# The mixin goes before one of verl's trainers; only type checkers see it as one itself.
_Base: Any = PPOTrainer if TYPE_CHECKING else object


class LimitedDrops(_Base):
    """Heeds ``algorithm.filter_groups.max_num_gen_batches``, which verl 0.9.1 has and ignores, in any of its trainers
    that it is mixed into."""

    def _build_replay_buffer(self) -> Any:
        most = OmegaConf.select(self.config, MAX_BATCHES) or 0
        batch = self.config.data.train_batch_size
        with open_dict(self.config):
            if most > 0:  # verl would warn that it ignores it
                self.config.algorithm.filter_groups.max_num_gen_batches = 0
            buffer = super()._build_replay_buffer()
            if most > 0:
                self.config.algorithm.filter_groups.max_num_gen_batches = most
        limit_drops(buffer, most, batch, batch + oversampled(self.config))
        if getattr(buffer, "train_batch_size", None) is None:
            buffer.train_batch_size = batch  # verl tells synchronous ones only; failures are counted by it
        return buffer
