"""Rollouts that are played and scored but not trained on: those that ended for a reason in ``System.untrained_ends``.

They leave the loss (response mask 0, so that no mean over tokens counts them) and the mean and standard deviation of
their group. A worker tags them in verl's transfer queue; the trainer and dynamic sampling read the tags.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transfer_queue as tq
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from agentic_video.training.loop.outputs import rewards_of, rollout_of

if TYPE_CHECKING:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

UNTRAINED = "untrained"
"""In an output's ``extra_fields``, in its tag in the transfer queue, and in ``reward_extra_info``."""


@dataclass(frozen=True)
class LeftOut:
    """Rows of a batch that teach nothing.

    Attributes:
        masked: Of untrained rollouts: no token of theirs counts.
        still: Advantage 0 and the mask as it was, as rows of a group without signal have it: what is left of a group
            of which a single rollout is; all rows of a batch of which none is.
    """

    masked: tuple[int, ...]
    still: tuple[int, ...]


def left_out(keys: Sequence[str], tags: Sequence[Mapping[str, Any]]) -> LeftOut:
    """The rows of a batch that teach nothing.

    Args:
        keys: Of verl's transfer queue.
        tags: Of the same rows.
    """
    rows = [row for row, tag in enumerate(tags) if not tag.get("is_padding", False)]
    untrained = tuple(row for row in rows if tags[row].get(UNTRAINED, False))
    if len(untrained) == len(rows):
        # verl takes means over the tokens of a batch: with none at all it fails.
        return LeftOut((), untrained)
    left: dict[str, set[str]] = {rollout_of(keys[row])[0]: set() for row in untrained}
    trained = sorted(set(rows) - set(untrained))
    for row in trained:
        uid, session = rollout_of(keys[row])
        if uid in left:
            left[uid].add(session)
    alone = (row for row in trained if len(left.get(rollout_of(keys[row])[0], ())) == 1)
    return LeftOut(untrained, tuple(alone))


def without_signal(members: Sequence[tuple[str, bool, float]]) -> float | None:
    """Whether dynamic sampling drops a group that has untrained rollouts.

    Args:
        members: Of each output of the group: its rollout, whether that is untrained, and the metric.

    Returns:
        The mean of the metric over all rollouts, where fewer than two are trained on or all of these have the same;
        None where the group stays.
    """
    values = {rollout: value for rollout, _, value in members}
    trained = {rollout: value for rollout, untrained, value in members if not untrained}
    if len(trained) > 1 and len(set(trained.values())) > 1:
        return None
    return sum(values.values()) / len(values)


def reclassify(buffer: Any, partition_id: str, uids: set[str]) -> None:
    """Correct what verl's replay buffer holds of groups that have untrained rollouts.

    Args:
        buffer: The replay buffer, with its snapshot of the transfer queue.
        partition_id: Which part of the queue.
        uids: Groups that it has classified just now.
    """
    tags = buffer.partitions[partition_id]
    groups: dict[str, list[str]] = defaultdict(list)
    for key in tags:
        if (uid := rollout_of(key)[0]) in uids:
            groups[uid].append(key)
    touched = {uid: keys for uid, keys in groups.items() if any(tags[key].get(UNTRAINED, False) for key in keys)}
    asked = [key for keys in touched.values() for key in keys]
    if not asked:
        return
    rewards = rewards_of(asked, partition_id)
    for uid, keys in touched.items():
        buffer._dapo_classification_cache[partition_id][uid] = without_signal(
            [
                (
                    rollout_of(key)[1],
                    bool(tags[key].get(UNTRAINED, False)),
                    float(rewards[key][buffer.filter_groups_metric]),
                )
                for key in keys
            ]
        )


# The mixin goes before one of verl's trainers; only type checkers see it as one itself.
_Base: Any = PPOTrainer if TYPE_CHECKING else object


class Untrained(_Base):
    """Leaves untrained rollouts out, in any of verl's trainers that it is mixed into."""

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        out = left_out(batch.keys, batch.tags)
        if out.masked:
            # Each a group of its own, so that no other's mean has it.
            masked = [(row, {"uid": "_".join(rollout_of(batch.keys[row]))}) for row in out.masked]
            _overwrite(batch, masked, ("response_mask", "loss_mask"))
        batch = super()._compute_advantage(batch, metrics)
        if out.still:
            _overwrite(batch, [(row, {}) for row in out.still], ("advantages", "returns"))
        return batch


def _overwrite(batch: Any, rows: Sequence[tuple[int, dict[str, Any]]], fields: Sequence[str]) -> None:
    """Write zeros into fields of some rows of a batch, and beside them what each row is given."""
    keys = [batch.keys[row] for row, _ in rows]
    data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=list(fields))
    written = [
        {**given, **{name: torch.zeros_like(data[name][number]) for name in fields}}
        for number, (_, given) in enumerate(rows)
    ]
    tq.kv_batch_put(keys=keys, partition_id=batch.partition_id, fields=list_of_dict_to_tensordict(written))
