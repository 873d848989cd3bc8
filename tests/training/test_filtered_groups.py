"""verl's own replay buffers, over a queue that is a dictionary, with a limit to the groups that a step drops."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import transfer_queue
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo.v1 import replay_buffer as buffers

from agentic_video.training.ppo.filtered_groups import limit_drops, limit_of
from tests.training.test_trainer import make_trainer

BATCH = 4
Policy = Callable[[int], list[float]]
"""What the rollouts of the group of that number earn; nothing: it failed."""


class Played:
    """A queue whose groups are played as soon as they are asked for, or after so many looks at it.

    Args:
        policy: What they earn.
        monkeypatch: Puts it in the place of verl's.
        looks: After how many looks the group of that number is over.
    """

    def __init__(self, policy: Policy, monkeypatch: pytest.MonkeyPatch, looks: Callable[[int], int] = lambda number: 0):
        self.rewards: dict[str, list[float]] = {}
        self.groups: dict[str, int] = {}
        self.asked = 0
        self._policy = policy
        self._looks = looks
        self._over_at: dict[str, int] = {}
        self._looked = 0
        self._step = 1
        for name in ("kv_list", "kv_clear", "kv_batch_get"):
            monkeypatch.setattr(transfer_queue, name, getattr(self, f"_{name}"))

    def begin(self, step: int, groups: int = BATCH) -> None:
        """The trainer hands out the questions of a step."""
        self._step = step
        self.play(groups)

    def play(self, number: int) -> None:
        for _ in range(number):
            uid = f"{self.asked:04d}"
            self.rewards[uid] = self._policy(self.asked)
            self.groups[uid] = self._step
            self._over_at[uid] = self._looked + self._looks(self.asked)
            self.asked += 1

    def _kv_list(self) -> dict[str, dict[str, dict[str, Any]]]:
        self._looked += 1
        tags: dict[str, dict[str, Any]] = {}
        for uid, step in self.groups.items():
            if self._looked <= self._over_at[uid]:
                tags[uid] = {"is_prompt": True, "global_steps": step, "status": "running"}
                continue
            status = "finished" if self.rewards[uid] else "failure"
            tags[uid] = {"is_prompt": True, "global_steps": step, "status": status}
            tags |= {f"{uid}_{number}_0": {} for number in range(len(self.rewards[uid]))}
        return {"train": tags}

    def _kv_clear(self, partition_id: str, keys: list[str]) -> None:
        for key in keys:
            self.groups.pop(key, None)

    def _kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        extras = []
        for key in keys:
            uid, number, _ = key.split("_")
            extras.append({"reward_extra_info": {"reward_key": self.rewards[uid][int(number)]}})
        return TensorDict({"extra_fields": NonTensorStack(*extras)}, [len(keys)])


def buffer_of(kind: str, played: Played, max_batches: int, begun: int = BATCH) -> Any:
    """One of verl's buffers, as its trainer makes it."""
    more = {"train_batch_size": BATCH, "gen_batch_size": 1} if kind == "ReplayBuffer" else {}
    buffer = getattr(buffers, kind)(
        trainer_mode="sync",
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=None,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create({}),
        poll_interval=0.0,
        refill_fn=played.play,
        filter_groups_metric="reward_key",
        **more,
    )
    limit_drops(buffer, max_batches, BATCH, begun)
    return buffer


def sampled(buffer: Any, step: int) -> tuple[list[str], dict[str, Any]]:
    """The groups of a step's batch, and verl's metrics of dropped ones."""
    batch, metrics = buffer.sample(step, "train", BATCH)
    return list(dict.fromkeys(key.split("_")[0] for key in batch.keys)), metrics


KINDS = pytest.mark.parametrize("kind", ["ReplayBuffer", "ReplayBufferAsync"])


@KINDS
@pytest.mark.parametrize("reward", [0.0, 10_000.0])
def test_a_step_of_a_policy_that_is_always_alike_ends(
    kind: str, reward: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(lambda number: [reward] * 3, monkeypatch)
    buffer = buffer_of(kind, played, max_batches=3)
    for step in (1, 2):  # counted anew
        before = played.asked
        played.begin(step)
        chosen, metrics = sampled(buffer, step)
        assert len(chosen) == BATCH and not played.groups
        # Two batches are dropped, and the third is taken, though verl asks for two groups for each that it drops.
        dropped = metrics["training/filter_groups/evicted_samples"]
        assert dropped == 2 * BATCH
        assert dropped + BATCH == played.asked - before
        assert metrics[buffers.DAPO_FILTERED_REWARD_COUNTS_KEY] == {reward: dropped}


LIKE, UNLIKE, FAILED = [0.0, 0.0], [0.0, 10_000.0], []


@given(
    outcomes=st.lists(st.sampled_from([LIKE, UNLIKE, FAILED]), min_size=1, max_size=40),
    looks=st.lists(st.integers(0, 5), min_size=1, max_size=40),
    max_batches=st.integers(2, 4),
    begun=st.integers(BATCH, 2 * BATCH),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_step_ends_and_plays_no_more_than_it_may(
    outcomes: list[list[float]], looks: list[int], max_batches: int, begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # after the outcomes that were drawn all are alike
    with monkeypatch.context() as patch:
        played = Played(
            lambda number: outcomes[number] if number < len(outcomes) else LIKE,
            patch,
            lambda number: looks[number % len(looks)],
        )
        buffer = buffer_of("ReplayBuffer", played, max_batches, begun)
        buffer.sync_refill_failed_groups = True
        played.begin(1, begun)
        chosen, _ = sampled(buffer, 1)
    rewards = list(played.rewards.values())
    assert len(chosen) == BATCH and played.asked - rewards.count(FAILED) <= max(begun, max_batches * BATCH)
    teaching = rewards.count(UNLIKE)
    assert [played.rewards[uid] for uid in chosen].count(UNLIKE) == min(BATCH, teaching)
    # A batch that isn't full of groups that teach something has had as many as it may.
    if teaching < BATCH:
        assert played.asked - rewards.count(FAILED) == max_batches * BATCH


def test_what_was_played_from_the_start_is_not_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # Both batches at once, three groups of which teach something: nothing more is asked for.
    played = Played(lambda number: [UNLIKE, LIKE, LIKE][number % 3], monkeypatch)
    buffer = buffer_of("ReplayBuffer", played, max_batches=2, begun=2 * BATCH)
    played.begin(1, 2 * BATCH)
    chosen, metrics = sampled(buffer, 1)
    assert played.asked == 2 * BATCH and not played.groups
    assert len(chosen) == BATCH and [played.rewards[uid] for uid in chosen].count(UNLIKE) == 3
    assert metrics["training/filter_groups/evicted_samples"] == BATCH


@KINDS
def test_all_groups_that_teach_something_are_taken(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # one of six
    played = Played(lambda number: [0.0, 10_000.0 * (number % 6 == 5)], monkeypatch)
    buffer = buffer_of(kind, played, max_batches=2)
    played.begin(1)
    chosen, metrics = sampled(buffer, 1)
    assert len(chosen) == BATCH
    teaching = [uid for uid in chosen if int(uid) % 6 == 5]
    assert teaching == [uid for uid in map("{:04d}".format, range(played.asked)) if int(uid) % 6 == 5]
    assert 1 <= len(teaching) < BATCH
    assert metrics["training/filter_groups/evicted_samples"] == played.asked - BATCH


@KINDS
def test_a_step_that_stays_below_the_limit_is_verls(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def step_of(max_batches: int) -> Any:
        numbers: Iterator[int] = count()
        played = Played(lambda number: [0.0, 10_000.0 * (next(numbers) % 3 > 0)], monkeypatch)
        buffer = buffer_of(kind, played, max_batches)
        played.begin(1)
        return sampled(buffer, 1)

    chosen, metrics = step_of(10)
    assert (chosen, metrics) == step_of(0)
    assert all(int(uid) % 3 for uid in chosen)
    assert metrics["training/filter_groups/evicted_samples"] == metrics[buffers.DAPO_FILTERED_REWARD_COUNTS_KEY][0.0]


def test_a_sampler_of_the_user_s_own_is_left_alone() -> None:
    class Sampler:
        pass

    own = Sampler()
    limit_drops(own, 2, BATCH, BATCH)
    assert not hasattr(own, "refill_fn")


def test_without_a_limit_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(lambda number: [0.0, 0.0], monkeypatch)
    buffer = buffer_of("ReplayBuffer", played, max_batches=0)
    played.begin(1)
    buffer._sync_metadata_from_transfer_queue()
    uids = {f"{number:04d}" for number in range(BATCH)}
    assert buffer._terminal_eviction_reasons(1, "train") == (set(), uids, set(), Counter({0.0: BATCH}))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        # 4 questions a step, two batches of them, as the recipe has it, or ten
        ([], 8),
        (["algorithm.filter_groups.max_num_gen_batches=10"], 40),
        (["algorithm.filter_groups.max_num_gen_batches=0"], None),
    ],
)
def test_a_trainer_s_buffer_has_the_limit(
    overrides: list[str], expected: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = make_trainer(*overrides)
    limit = limit_of(trainer.replay_buffer, 1)
    assert (limit and limit.most) == expected
    # the recipe's oversample
    assert limit is None or (limit.batch, limit.begun, limit.left) == (4, 8, limit.most - 8)
    # as it was set, for whoever reads it
    said = int(overrides[0].split("=")[1]) if overrides else 2
    assert trainer.config.algorithm.filter_groups.max_num_gen_batches == said
    assert "ignored" not in caplog.text
