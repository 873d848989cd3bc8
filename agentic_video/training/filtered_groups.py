"""Dynamic sampling, as verl's replay buffer does it: what dropped groups earned, and how many a step may drop."""

import statistics
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf, open_dict

from agentic_video.training.outputs import rewards_of, rollout_of
from agentic_video.training.reward_manager import REWARD_KEY

if TYPE_CHECKING:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

MAX_BATCHES = "algorithm.filter_groups.max_num_gen_batches"
Reasons = tuple[set[str], set[str], set[str], "Counter[float]"]
"""Groups that are stale, alike, failed, and how many of the alike there are by what they earned: why verl's replay
buffer drops groups (``_terminal_eviction_reasons``)."""


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


def limit_drops(buffer: Any, max_batches: int, batch_size: int) -> None:
    """Let a replay buffer drop so many groups a step and no more.

    Args:
        buffer: verl's replay buffer, which keeps the limit.
        max_batches: ``algorithm.filter_groups.max_num_gen_batches``: how many batches a step may play, its own
            included; 0 or less: as many as it takes.
        batch_size: Groups a batch.
    """
    buffer.batch_groups = batch_size
    buffer.max_dropped = (max_batches - 1) * batch_size if max_batches > 0 else None


def count_drops(buffer: Any, step: int, dropped: int) -> None:
    """Count groups that a step has dropped because they were alike."""
    buffer.dropped_in_step = (step, dropped + _dropped(buffer, step))


def _dropped(buffer: Any, step: int) -> int:
    """How many groups a step has dropped so far because they were alike."""
    of_step, count = getattr(buffer, "dropped_in_step", (step, 0))
    return count if of_step == step else 0


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
    most = getattr(buffer, "max_dropped", None)
    stale, alike, failed, counts = reasons
    if most is None or not alike or _dropped(buffer, step) < most:
        return reasons
    over = buffer.finished_keys[partition_id] | buffer.failure_keys[partition_id]
    room = max(0, buffer.batch_groups - len(over - stale - alike - failed))
    kept = set(sorted(alike - stale - failed)[:room])
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
        if most <= 0:
            return super()._build_replay_buffer()
        with open_dict(self.config):
            # verl would warn that it ignores it.
            self.config.algorithm.filter_groups.max_num_gen_batches = 0
            buffer = super()._build_replay_buffer()
            self.config.algorithm.filter_groups.max_num_gen_batches = most
        limit_drops(buffer, most, self.config.data.train_batch_size)
        return buffer
