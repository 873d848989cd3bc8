"""Means of verl's losses where a batch has padding, untrained rollouts, and episodes of several rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import verl.trainer.ppo.rollout_corr_helper as corrections
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from verl.utils.metric import Metric
from verl.utils.tensordict_utils import get_tensordict
from verl.workers.config import ActorConfig
from verl.workers.utils.losses import ppo_loss

from agentic_video.training.engines.loss_means import SHARES, over_episodes, prepare_means, row_shares, trained_rows
from tests.config.configs import composed

PROMPT = 2


@dataclass(frozen=True)
class Row:
    """A row of a batch: its episode, its trained tokens, their advantage, and how far their log-probability moved."""

    episode: tuple[str, int]
    tokens: int
    advantage: float
    moved: float = 0.0


PADDING = Row(("pad", 0), 0, 0.0)


def nested(values: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(list(values), layout=torch.jagged)


def part(rows: Sequence[Row], *, named: bool = True) -> TensorDict:
    """What a rank has of an update; each row's response ends in a token that the model didn't say."""
    lengths = [row.tokens + 1 for row in rows]
    masks = [torch.tensor([1] * row.tokens + [0]) for row in rows]
    fields: dict[str, Any] = {
        "prompts": nested([torch.zeros(PROMPT, dtype=torch.int64) for _ in rows]),
        "responses": nested([torch.zeros(length, dtype=torch.int64) for length in lengths]),
        "input_ids": nested([torch.zeros(PROMPT + length, dtype=torch.int64) for length in lengths]),
        "response_mask": nested(masks),
        "loss_mask": nested(masks),
        "old_log_probs": nested([torch.full((length,), -1.0) for length in lengths]),
        "advantages": nested([torch.full((length,), row.advantage) for row, length in zip(rows, lengths, strict=True)]),
    }
    if named:
        fields |= {"uid": [row.episode[0] for row in rows], "session_id": [row.episode[1] for row in rows]}
    return get_tensordict(fields, {"global_batch_size": 999})


def losses(ranks: Sequence[Sequence[Row]], mode: str, micro_batch: int = 8, **more: Any) -> tuple[float, Any]:
    """The loss of an update and its metrics, reduced as verl's FSDP engine and worker reduce them."""
    config = ActorConfig(
        strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=1, loss_agg_mode=mode, clip_ratio_high=0.2, **more
    )
    parts = [part(rows) for rows in ranks]
    trained = [trained_rows(data, rank) for rank, data in enumerate(parts)]
    total, found = 0.0, []
    for rank, (rows, data) in enumerate(zip(ranks, parts, strict=True)):
        tokens = prepare_means(data, trained, rank)
        loss = over_episodes(lambda **inputs: ppo_loss(config=config, **inputs), tokens, len(ranks))
        metrics: list[Any] = []
        for start in range(0, len(rows), micro_batch):
            some = rows[start : start + micro_batch]
            micro = part(some)
            micro[SHARES] = data[SHARES][start : start + micro_batch]
            shared = {"dp_size": len(ranks), "batch_num_tokens": tokens, "global_batch_size": data["global_batch_size"]}
            micro = get_tensordict({name: micro[name] for name in micro.keys() if name not in shared}, shared)  # noqa: SIM118
            moved = [torch.full((PROMPT + row.tokens + 1,), -1.0 + row.moved) for row in some]
            value, metric = loss(model_output={"log_probs": nested(moved)}, data=micro)
            total += float(value) / len(ranks)
            metrics.append(metric)
        found.append(metrics)
    reduced = {}
    for name in ("actor/ppo_kl", "actor/pg_clipfrac"):
        of_ranks = [Metric(aggregation="sum") for _ in found]
        for of_rank, metrics in zip(of_ranks, found, strict=True):
            for metric in metrics:
                of_rank.append(metric[name])
        reduced[name] = float(Metric.aggregate_dp(of_ranks))
    return total, reduced


SHORT, LONG, OTHER = Row(("q", 0), 2, 1.0), Row(("q", 1), 4, -1.0), Row(("q", 2), 2, 3.0)
WHOLE = [SHORT, LONG, OTHER]
# the episode of four tokens is two rows, one and three of them, on different ranks
HEAD, TAIL = Row(("q", 1), 1, -1.0), Row(("q", 1), 3, -1.0)
LAYOUTS = {
    "one rank": [WHOLE],
    "two ranks, three rollouts and padding": [[SHORT, LONG], [OTHER, PADDING]],
    "an episode of two rows": [[SHORT, HEAD], [TAIL, OTHER]],
    "an episode of two rows, and padding": [[SHORT, HEAD, PADDING], [TAIL, OTHER, PADDING]],
    "an untrained rollout": [[SHORT, LONG], [OTHER, Row(("q", 3), 0, 5.0)]],
}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # each trained token's loss is minus its advantage: -1 twice, 1 four times, -3 twice
        ("token-mean", -4 / 8),
        ("token-sum", -4.0),
        # episodes' sums are -2, 4 and -6, their means -1, 1 and -3
        ("seq-mean-token-sum", -4 / 3),
        ("seq-mean-token-mean", -3 / 3),
        ("seq-mean-token-sum-norm", -4 / 3 / 10),
    ],
)
@pytest.mark.parametrize("micro_batch", [1, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_loss_is_the_same_however_its_rows_lie(layout: str, micro_batch: int, mode: str, expected: float) -> None:
    found, _ = losses(LAYOUTS[layout], mode, micro_batch, loss_scale_factor=10)
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("micro_batch", [1, 8])
def test_metrics_of_tokens_are_means_over_the_tokens_of_an_update(micro_batch: int) -> None:
    """One rollout of two tokens moved by 0.4, beyond the clip; six tokens did not; half of the rows are padding."""
    moved = Row(("q", 0), 2, 1.0, moved=0.4)
    ranks = [[moved, PADDING, PADDING, PADDING], [LONG, OTHER, PADDING, PADDING]]
    _, metrics = losses(ranks, "token-mean", micro_batch)
    assert metrics["actor/pg_clipfrac"] == pytest.approx(2 / 8)
    assert metrics["actor/ppo_kl"] == pytest.approx(-0.4 * 2 / 8)


def prepared(data: TensorDict) -> int:
    return prepare_means(data, [trained_rows(data, 0)], 0)


def test_without_names_each_row_is_an_episode() -> None:
    parts = [part([SHORT, HEAD], named=False), part([TAIL, PADDING], named=False)]
    trained = [trained_rows(data, rank) for rank, data in enumerate(parts)]
    for rank, data in enumerate(parts):
        assert prepare_means(data, trained, rank) == 6
        assert data["global_batch_size"] == 3
    assert [data[SHARES].tolist() for data in parts] == [[1.0, 1.0], [1.0, 0.0]]


def test_tokens_that_are_rejected_are_not_counted() -> None:
    data = part([SHORT, LONG])
    kept = data["response_mask"].clone()
    kept.values()[3:] = 0  # the second row
    data["response_mask"] = kept
    assert prepared(data) == 2
    assert (int(data["loss_mask"].sum()), data["global_batch_size"]) == (2, 1)
    assert data[SHARES].tolist() == [1.0, 0.0]


def test_an_update_without_tokens_keeps_what_verl_divides_by() -> None:
    data = part([PADDING, PADDING])
    assert prepared(data) == 0
    assert data["global_batch_size"] == 999


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=20))
def test_shares_of_an_episode_add_up_to_one(rows: list[tuple[int, int]]) -> None:
    shares = row_shares(rows)
    for episode in {episode for episode, _ in rows}:
        of = [(count, share) for (key, count), share in zip(rows, shares, strict=True) if key == episode]
        assert sum(share for _, share in of) == pytest.approx(1.0 if any(count for count, _ in of) else 0.0)
        assert all((share > 0) == (count > 0) for count, share in of)


def test_the_horizon_of_normalised_sums_is_the_longest_response() -> None:
    """verl's default is the longest row of a micro-batch, so that the loss would follow how micro-batches are cut."""
    config = composed("videozoomer", "cluster")
    assert config.actor_rollout_ref.actor.loss_scale_factor == config.data.max_response_length


def with_padding(values: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.cat([values, torch.zeros(rows, values.shape[1], dtype=values.dtype)])


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_figures_of_sequences_leave_padding_out(level: str) -> None:
    torch.manual_seed(0)
    old, rollout = torch.randn(3, 5) - 2, torch.randn(3, 5) - 2
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]])
    more: dict[str, Any] = {"rollout_is": level, "rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.9_1.1"}
    compute = corrections.compute_rollout_correction_and_rejection_mask
    _, kept, expected = compute(old, rollout, mask, **more)
    _, kept_padded, found = compute(*(with_padding(item, 5) for item in (old, rollout, mask)), **more)
    assert found == pytest.approx(expected)
    assert torch.equal(kept_padded[:3], kept)
