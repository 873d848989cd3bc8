"""Optimizer updates of a step: as many as configured, also where an episode is several sequences.

verl splits a step's rows into updates of ``ppo_mini_batch_size * n`` rows, and pads the last one. Where each turn is a
row, or side queries are, one update would be two or three, the last of a few rows, whose tokens weigh a multiple.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from agentic_video.training.loop.outputs import rollout_of

if TYPE_CHECKING:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

# Only type checkers see the mixin as a trainer itself.
_Base: Any = PPOTrainer if TYPE_CHECKING else object


class EvenUpdates(_Base):
    """Updates of ``ppo_mini_batch_size`` questions, all of as many rows, in any of verl's trainers."""

    _updates = _ranks = 1

    def _balance_batch(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        questions = {
            rollout_of(key)[0] for key, padding in zip(batch.keys, _padding(batch), strict=True) if not padding
        }
        self._updates = max(1, -(-len(questions) // self.config.actor_rollout_ref.actor.ppo_mini_batch_size))
        batch = super()._balance_batch(batch, *args, **kwargs)
        batch.reorder(spread_padding(_padding(batch), self._ranks, self._updates))
        return batch

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        self._ranks = dp_size
        # as verl's multiple does, so that micro-batches of a fixed size fill each rank's share
        return dp_size * self._updates * fixed_micro_batch(self.config.actor_rollout_ref)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        # the two keys from which verl computes the rows of an update
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        before = actor.ppo_mini_batch_size, rollout.n
        actor.ppo_mini_batch_size, rollout.n = len(batch.keys) // self._updates, 1
        try:
            return super()._update_actor(batch, metrics)
        finally:
            actor.ppo_mini_batch_size, rollout.n = before


def _padding(batch: Any) -> list[bool]:
    """Flags of the rows that only fill the batch up."""
    return [bool(tag.get("is_padding", False)) for tag in batch.tags]


def spread_padding(padding: Sequence[bool], ranks: int, updates: int) -> list[int]:
    """The order of rows in which each update has its share of the padding; each row stays with its rank."""
    share = len(padding) // ranks
    order: list[int] = []
    turns = cycle(range(updates))
    for start in range(0, len(padding), share):
        rows = range(start, start + share)
        real, fill = (iter([row for row in rows if padding[row] is kind]) for kind in (False, True))
        fills = Counter(islice(turns, sum(padding[row] for row in rows)))
        for update in range(updates):
            order += [*islice(real, share // updates - fills[update]), *islice(fill, fills[update])]
    return order


def fixed_micro_batch(config: DictConfig) -> int:
    """Rows of which a rank's share of an update must be a multiple; 1 where micro-batches are by tokens."""
    actor, rollout, reference = config.actor, config.rollout, config.ref
    sizes = (
        None if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu,
        None if rollout.log_prob_use_dynamic_bsz else rollout.log_prob_micro_batch_size_per_gpu,
        None if reference.log_prob_use_dynamic_bsz else reference.log_prob_micro_batch_size_per_gpu,
    )
    return math.lcm(*(int(size) for size in sizes if size))
