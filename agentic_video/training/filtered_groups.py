"""What the groups earned that dynamic sampling drops, whichever metric it goes by."""

import statistics
from collections import defaultdict
from typing import Any

from agentic_video.training.reward_manager import REWARD_KEY
from agentic_video.training.untrained import rewards_of, rollout_of


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
