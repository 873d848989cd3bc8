"""Rollouts that aren't trained on, in verl's own advantage and dynamic sampling; the queue is a dictionary."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import transfer_queue
from hypothesis import given
from hypothesis import strategies as st
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta

from agentic_video.training.logs.episode_log import sampled_reward
from agentic_video.training.loop.agent_loop_manager import VideoAgentLoopWorker
from agentic_video.training.loop.outputs import UNTRAINED, key_of, rollout_of, without_signal
from agentic_video.training.ppo.untrained import excluded_rows
from tests.training.test_replay_buffer import ours
from tests.training.test_trainer import make_trainer
from tests.training.workers import loop_output, make_worker

Held = dict[str, dict[str, Any]]
LEFT_OUT = {UNTRAINED: True}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    rows: Held = {}

    def get(keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        made: dict[str, Any] = {}
        for name in select_fields:
            values = [rows[key][name] for key in keys if name in rows[key]]
            if values:
                # the queue's columns of tensors are always nested, also where all are equally long
                tensors = isinstance(values[0], torch.Tensor)
                jagged = torch.nested.as_nested_tensor(values, layout=torch.jagged) if tensors else None
                made[name] = NonTensorStack(*values) if jagged is None else jagged
        return TensorDict(made, batch_size=[len(keys)])

    def put(keys: list[str], partition_id: str, fields: Any = None, tags: Any = None) -> KVBatchMeta:
        for number, key in enumerate(keys):
            for name in map(str, list(fields.keys())):
                value = fields[name][number]
                rows[key][name] = getattr(value, "data", value) if not isinstance(value, torch.Tensor) else value
        return KVBatchMeta(keys=keys, tags=[{} for _ in keys], partition_id=partition_id)

    monkeypatch.setattr(transfer_queue, "kv_batch_get", get)
    monkeypatch.setattr(transfer_queue, "kv_batch_put", put)
    return rows


def row(uid: str, reward: float, mask: list[int]) -> dict[str, Any]:
    scores = torch.zeros(len(mask))
    scores[-1] = reward
    tokens = torch.tensor(mask)
    return {"uid": uid, "response_mask": tokens, "loss_mask": tokens, "rm_scores": scores}


def advantages(held: Held, tags: dict[str, dict[str, Any]], *overrides: str) -> dict[str, list[float]]:
    batch = KVBatchMeta(keys=list(held), tags=[tags.get(key, {}) for key in held], partition_id="train")
    make_trainer("algorithm.norm_adv_by_std_in_grpo=False", *overrides)._compute_advantage(batch, {})
    return {key: fields["advantages"].tolist() for key, fields in held.items()}


@pytest.mark.parametrize(
    ("rows", "untrained", "expected"),
    [
        # mean of 1 and 0; with -5 it would be -4/3
        (
            {"a_0_0": (1.0, [1, 1, 0, 1]), "a_1_0": (0.0, [1, 1]), "a_2_0": (-5.0, [1, 0, 1])},
            ["a_2_0"],
            {"a_0_0": [0.5, 0.5, 0.0, 0.5], "a_1_0": [-0.5, -0.5], "a_2_0": [0.0, 0.0, 0.0]},
        ),
        # one that is left alone has no advantage; another group is as it was
        (
            {"a_0_0": (1.0, [1, 1]), "a_1_0": (0.0, [1]), "b_0_0": (1.0, [1]), "b_1_0": (0.0, [1])},
            ["a_1_0"],
            {"a_0_0": [0.0, 0.0], "a_1_0": [0.0], "b_0_0": [0.5], "b_1_0": [-0.5]},
        ),
        # an episode of two outputs leaves as a whole
        (
            {f"a_{number}_{part}": (reward, [1]) for number, reward in enumerate((1.0, 0.0, 4.0)) for part in (0, 1)},
            ["a_2_0", "a_2_1"],
            {f"a_{number}_{part}": [value] for number, value in enumerate((0.5, -0.5, 0.0)) for part in (0, 1)},
        ),
    ],
)
def test_the_rest_of_a_group_is_compared_with_itself(
    rows: dict[str, tuple[float, list[int]]], untrained: list[str], expected: dict[str, list[float]], held: Held
) -> None:
    held.update({key: row(key[0], reward, mask) for key, (reward, mask) in rows.items()})
    assert advantages(held, dict.fromkeys(untrained, LEFT_OUT)) == expected
    for key, (reward, mask) in rows.items():
        kept = [0] * len(mask) if key in untrained else mask
        assert held[key]["response_mask"].tolist() == held[key]["loss_mask"].tolist() == kept
        assert float(held[key]["rm_scores"].sum()) == reward  # stays, for the log


def test_a_batch_of_which_nothing_is_left_moves_nothing_and_fails_nothing(held: Held) -> None:
    held.update({"a_0_0": row("a", 1.0, [1, 1]), "a_1_0": row("a", 0.0, [1, 1])})
    found = advantages(held, {"a_0_0": LEFT_OUT, "a_1_0": LEFT_OUT})
    assert found == {"a_0_0": [0.0, 0.0], "a_1_0": [0.0, 0.0]}
    assert held["a_0_0"]["response_mask"].tolist() == [1, 1]


def test_the_kl_of_rewards_is_that_of_trained_rows(held: Held) -> None:
    """Rows of KL 1 and 3, and two of padding: the mean is 2, of two rows, as an adaptive coefficient reads it."""
    gaps = {"a_0_0": ([1, 1], [1.0, 1.0]), "a_1_0": ([1], [3.0]), "p_0_0": ([0], [9.0]), "q_0_0": ([0], [9.0])}
    for key, (mask, gap) in gaps.items():
        logs = {"old_log_probs": torch.tensor(gap), "ref_log_prob": torch.zeros(len(gap))}
        held[key] = {**row(key[0], 0.0, mask), **logs}
    tags = [{}, {}, {"is_padding": True}, {"is_padding": True}]
    batch = KVBatchMeta(keys=list(held), tags=tags, partition_id="train")
    keys = "algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.type=adaptive", "algorithm.kl_ctrl.horizon=10"
    trainer = make_trainer(*keys, "algorithm.kl_ctrl.kl_coef=0.1", "algorithm.kl_ctrl.target_kl=2.0")
    metrics: dict[str, float] = {}
    trainer._compute_advantage(batch, metrics)
    assert metrics["actor/reward_kl_penalty"] == pytest.approx(2.0)
    assert metrics["actor/reward_kl_penalty_coeff"] == trainer.kl_ctrl_in_reward.value == pytest.approx(0.1)
    assert held["a_1_0"]["token_level_rewards"].tolist() == [pytest.approx(-0.3)]


def test_keys_of_outputs() -> None:
    assert key_of("a_b", 3, 11) == "a_b_3_11"
    assert rollout_of("a-b_3_0") == ("a-b", "3") and rollout_of("a_b_3_11") == ("a_b", "3")


def test_verls_padding_is_none_of_it() -> None:
    keys = ["a_0_0", "a_1_0", "a_2_0", "pad1_0_0"]
    # verl copies the first row's tag
    tags = [LEFT_OUT, {}, {}, {**LEFT_OUT, "is_padding": True}]
    out = excluded_rows(keys, tags)
    assert (out.masked, out.still) == ((0,), ())


GROUPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 1), st.booleans()),
    unique_by=lambda row: row[:3],
)


@given(GROUPS)
def test_no_row_is_both_and_lone_ones_are_found(rows: list[tuple[str, int, int, bool]]) -> None:
    # all outputs of a rollout have the same tag
    tag = {(uid, session): untrained for uid, session, _, untrained in rows}
    keys = [f"{uid}_{session}_{part}" for uid, session, part, _ in rows]
    tags = [{UNTRAINED: tag[uid, session]} for uid, session, _, _ in rows]
    out = excluded_rows(keys, tags)
    assert not set(out.masked) & set(out.still)
    if not all(tag.values()):
        assert set(out.masked) == {number for number, item in enumerate(tags) if item[UNTRAINED]}
        for number in out.still:
            uid = rows[number][0]
            others = {session: untrained for (whose, session), untrained in tag.items() if whose == uid}
            assert sorted(others.values()) == [False, *([True] * (len(others) - 1))] and len(others) > 1


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([("0", False, 1.0), ("1", False, 0.0), ("2", True, 1.0)], None),
        ([("0", False, 1.0), ("1", False, 1.0), ("2", True, 4.0)], 2.0),
        ([("0", False, 1.0), ("1", True, 0.0), ("2", True, 2.0)], 1.0),
        ([("0", True, 3.0), ("1", True, 0.0)], 1.5),
        # two outputs of a rollout are one member
        ([("0", False, 1.0), ("0", False, 1.0), ("1", True, 0.0)], 0.5),
    ],
)
def test_groups_without_signal(members: list[tuple[str, bool, float]], expected: float | None) -> None:
    assert without_signal(members) == expected


def sampling_buffer(held: Held, groups: dict[str, list[tuple[float, bool]]]) -> Any:
    """A replay buffer that has the groups: of each rollout its metric, and whether it is untrained."""
    buffer = ours("ReplayBuffer")
    buffer.filter_groups_metric = "reward_key"
    for uid, rollouts in groups.items():
        buffer.finished_keys["train"].add(uid)
        for number, (value, untrained) in enumerate(rollouts):
            key = f"{uid}_{number}_0"
            buffer.partitions["train"][key] = dict(LEFT_OUT) if untrained else {}
            held[key] = {"extra_fields": {"reward_extra_info": {"reward_key": value}}}
    return buffer


def test_dynamic_sampling_looks_at_what_is_left(held: Held) -> None:
    buffer = sampling_buffer(
        held,
        {
            "mixed": [(10_000.0, False), (0.0, False), (0.0, True)],
            "alike": [(0.0, False), (0.0, False), (10_000.0, True)],
            "lone": [(10_000.0, False), (0.0, True), (0.0, True)],
            "stock": [(500.0, False), (500.0, False)],
        },
    )
    filtered, counts = buffer._dapo_filtered_keys("train")
    assert filtered == {"alike", "lone", "stock"}
    assert counts == Counter({10_000.0 / 3: 2, 500.0: 1})
    # as held: nothing is asked for again
    held.clear()
    assert buffer._dapo_filtered_keys("train")[0] == filtered
    assert buffer._dapo_filtered_keys("val") == (set(), Counter())
    buffer = sampling_buffer({}, {"lone": [(1.0, False), (0.0, True)]})
    buffer.filter_groups_metric = None  # without dynamic sampling
    assert buffer._dapo_filtered_keys("train") == (set(), Counter())


def test_dropped_groups_are_counted_by_reward_whatever_they_are_dropped_for(held: Held) -> None:
    groups = {"right": [12_000.0, 14_000.0], "mixed": [12_000.0, 0.0], "wrong": [0.0, 0.0]}
    buffer = sampling_buffer(held, {uid: [(value, False) for value in values] for uid, values in groups.items()})
    buffer.filter_groups_metric = "acc"
    for fields in held.values():
        earned = fields["extra_fields"]["reward_extra_info"]
        earned["acc"] = float(earned["reward_key"] > 0)
    # an episode of two outputs counts once
    buffer.partitions["train"]["right_1_1"] = {}
    held["right_1_1"] = held["right_1_0"]
    filtered, counts = buffer._dapo_filtered_keys("train")
    assert filtered == {"right", "wrong"}
    assert counts == Counter({13_000.0: 1, 0.0: 1})
    # (1.2 + 0 of the kept group, 2 * 1.3 and 2 * 0 of the others) / 6
    assert sampled_reward([1.2, 0.0], counts, 2) == pytest.approx(3.8 / 6)
    held.clear()
    assert buffer._dapo_filtered_keys("train") == (filtered, counts)


@pytest.mark.parametrize(("untrained", "validate"), [(True, False), (False, False), (True, True)])
def test_a_worker_tags_all_outputs(
    untrained: bool, validate: bool, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock: Any = VideoAgentLoopWorker.__base__
    done: list[Any] = []

    async def postprocess(self: Any, output: Any, validate: bool, **row: Any) -> None:
        done.append("stored")

    async def put(**asked: Any) -> None:
        done.append(asked)

    monkeypatch.setattr(stock, "_agent_loop_postprocess", postprocess)
    monkeypatch.setattr(transfer_queue, "async_kv_batch_put", put)
    outputs = [loop_output([1], [2], **{UNTRAINED: untrained}) for _ in range(2)]
    worker = make_worker(monkeypatch, checkpoint)
    asyncio.run(worker._agent_loop_postprocess(outputs, validate, uid="u", session_id=3))
    tag = {"keys": ["u_3_0", "u_3_1"], "tags": [LEFT_OUT, LEFT_OUT], "partition_id": "train"}
    assert done == (["stored", tag] if untrained and not validate else ["stored"])
