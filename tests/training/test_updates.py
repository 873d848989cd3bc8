from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import verl.trainer.ppo.v1.trainer_base as trainer_base
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tensordict import NonTensorData, TensorDict
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from agentic_video.training.ppo.updates import EvenUpdates, spread_padding

RANKS = 4


class Trainer(EvenUpdates, PPOTrainer):
    """verl's, without workers: it notes what they would get."""

    def __init__(self, questions: int, mini_batch: int, rollouts: int, micro_batch: int = 0):
        actor = {
            "ppo_mini_batch_size": mini_batch,
            "calculate_entropy": False,
            "entropy_coeff": 0.0,
            "ppo_epochs": 1,
            "data_loader_seed": 1,
            "shuffle": False,
            "use_dynamic_bsz": not micro_batch,
            "ppo_micro_batch_size_per_gpu": micro_batch or None,
        }
        by_tokens = {"log_prob_use_dynamic_bsz": True, "log_prob_micro_batch_size_per_gpu": 3}
        rollout = {"n": rollouts, "temperature": 1.0, **by_tokens}
        self.config = OmegaConf.create(
            {
                "data": {"train_batch_size": questions},
                "actor_rollout_ref": {"actor": actor, "rollout": rollout, "ref": by_tokens},
                "trainer": {"critic_warmup": 0, "balance_batch": True},
            }
        )
        OmegaConf.set_struct(self.config, True)
        self.use_critic, self.global_steps, self.distillation_config = False, 1, None
        self.tokenizer: Any = SimpleNamespace(eos_token_id=0)
        mapping: dict[str, Any] = {"actor": list(range(RANKS))}
        self.actor_rollout_wg: Any = SimpleNamespace(_dispatch_info=mapping, update_actor=self.note)

    def on_sample_end(self) -> None:
        """verl's trainers wake their engines here."""

    on_step_end = on_sample_end

    def note(self, batch: Any) -> Any:
        self.rows, self.info = len(batch.keys), dict(batch.extra_info)
        return TensorDict({"metrics": NonTensorData({"mfu": [0.0]})})


class Batch(SimpleNamespace):
    def reorder(self, order: Sequence[int]) -> None:
        assert sorted(order) == list(range(len(self.keys)))
        self.keys = [self.keys[row] for row in order]
        self.tags = [self.tags[row] for row in order]


def batch_of(turns: Sequence[Sequence[int]]) -> Batch:
    keys = [
        f"q{question}_{rollout}_{turn}"
        for question, rollouts in enumerate(turns)
        for rollout, count in enumerate(rollouts)
        for turn in range(count)
    ]
    return Batch(keys=keys, tags=[{"seq_len": 10} for _ in keys], partition_id="train", extra_info={})


def padded(batch: Batch, multiple: int, _: int) -> Batch:
    missing = -len(batch.keys) % multiple
    keys = [*batch.keys, *(f"pad{number}_0_0" for number in range(missing))]
    return Batch(
        keys=keys,
        tags=[*batch.tags, *({"seq_len": 1, "is_padding": True} for _ in range(missing))],
        partition_id=batch.partition_id,
        extra_info={},
    )


@pytest.mark.parametrize(
    ("turns", "mini_batch", "rows", "an_update"),
    [
        # an episode is one row: as verl has it, two updates of 2 x 4 rows
        ([[1] * 4] * 4, 2, 16, 8),
        # a row a turn, one update a step: 37 rows of 4 ranks are 40, all in one
        ([[2, 3, 2, 3]] * 3 + [[1, 1, 2, 3]], 4, 40, 40),
        # the same in two updates: a multiple of 8
        ([[2, 3, 2, 3]] * 3 + [[1, 1, 2, 3]], 2, 40, 20),
        # half of a batch, as where verl found no more: one update, not two
        ([[3, 3, 3, 3]] * 2, 2, 24, 24),
    ],
)
def test_updates_are_as_many_as_the_config_says(
    turns: list[list[int]], mini_batch: int, rows: int, an_update: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_base, "upsample_batch_to_divisible_size", padded)
    trainer = Trainer(questions=4, mini_batch=mini_batch, rollouts=4)
    batch = trainer._balance_batch(batch_of(turns), {})
    trainer._update_actor(batch, {})
    assert (trainer.rows, trainer.info["mini_batch_size"]) == (rows, an_update)
    assert trainer.info["global_batch_size"] == an_update
    assert trainer.config.actor_rollout_ref.actor.ppo_mini_batch_size == mini_batch
    assert trainer.config.actor_rollout_ref.rollout.n == 4


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(1, 4), st.integers(1, 4))
def test_padding_is_spread_within_its_rank(kinds: list[bool], ranks: int, updates: int) -> None:
    padding = kinds * ranks * updates
    order = spread_padding(padding, ranks, updates)
    share = len(padding) // ranks
    assert sorted(order) == list(range(len(padding)))
    assert all(row // share == place // share for place, row in enumerate(order))
    for kind in (False, True):
        kept = [row for row in order if padding[row] is kind]
        assert kept == sorted(kept)
    filled = [0] * updates
    for place, row in enumerate(order):
        filled[place % share // (share // updates)] += padding[row]
    assert max(filled) - min(filled) <= 1


def test_micro_batches_of_a_fixed_size_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_base, "upsample_batch_to_divisible_size", padded)
    trainer = Trainer(questions=4, mini_batch=2, rollouts=4, micro_batch=3)
    trainer._update_actor(trainer._balance_batch(batch_of([[2, 3, 2, 3]] * 4), {}), {})
    # 40 rows; 4 ranks, 2 updates and micro-batches of 3: 48
    assert (trainer.rows, trainer.info["mini_batch_size"]) == (48, 24)
