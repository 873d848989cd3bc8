"""The loss, worked out by hand and against what TRL's trainer computed (see trl_kto.py)."""

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.training.sft_kto.kto import KtoLoss, balanced_weights, mismatch, reference_point, sequence_log_probs
from tests.training.trl_kto import EXPECTED, LABELS, Batch, TinyModel, config, models


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_losses_by_hand() -> None:
    values = (torch.tensor([-10.0, -20.0]), torch.tensor([-14.0, -17.0]), torch.tensor(1.0))
    policy, reference, kl = (value.requires_grad_() for value in values)
    losses = KtoLoss(0.1, 2.0, 0.5).losses(policy, reference, torch.tensor([True, False]), kl)
    # desirable: ratio 4, 1 - s(0.1 * (4 - 1)); undesirable: ratio -3, 1 - s(0.1 * (1 - -3))
    assert losses.tolist() == pytest.approx([2 * (1 - sigmoid(0.3)), 0.5 * (1 - sigmoid(0.4))], abs=1e-7)
    assert KtoLoss(beta=0.1).rewards(policy, reference).tolist() == pytest.approx([0.4, -0.3])
    losses.sum().backward()
    assert policy.grad is not None and reference.grad is None and kl.grad is None


def test_losses_stay_finite_far_out() -> None:
    policy = torch.tensor([1e6, -1e6], requires_grad=True)
    losses = KtoLoss().losses(policy, torch.zeros(2), torch.tensor([True, True]), torch.tensor(0.0))
    losses.sum().backward()
    assert losses.tolist() == [0.0, 1.0]
    assert policy.grad is not None and torch.isfinite(policy.grad).all()


def test_reference_point_is_a_mean_that_never_falls_below_zero() -> None:
    policy = torch.tensor([-3.0, -5.0], requires_grad=True)
    point = reference_point(policy, torch.tensor([-6.0, -6.0]))
    assert point.item() == 2.0 and not point.requires_grad
    # the mean is clamped, not each pair: (-3 + 1) / 2 is below 0, (-1 + 3) / 2 is not
    assert reference_point(torch.tensor([-3.0, 1.0]), torch.zeros(2)).item() == 0.0
    assert reference_point(torch.tensor([-1.0, 3.0]), torch.zeros(2)).item() == 1.0
    with pytest.raises(ValueError, match="at least one"):
        reference_point(torch.zeros(0), torch.zeros(0))


def _rank(rank: int, port: int, results: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    # 2 pairs here, 1 there: every pair counts alike, and one rank's negative mean isn't clamped on its own
    policy = torch.tensor([4.0, 5.0]) if rank == 0 else torch.tensor([-3.0])
    results.put(reference_point(policy, torch.zeros_like(policy), torch.distributed.group.WORLD).item())
    torch.distributed.destroy_process_group()


@pytest.mark.slow  # starts two processes
def test_reference_point_over_ranks() -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=_rank, args=(rank, port, results)) for rank in range(2)]
    for item in ranks:
        item.start()
    points = [results.get(timeout=120) for _ in ranks]
    for item in ranks:
        item.join()
    assert points == [2.0, 2.0]


def test_sums_are_over_generated_tokens() -> None:
    # ids: prompt a b, said c d | prompt e, shown f, said g; the log-probability of a token stands at the one before it
    log_probs = torch.tensor([-1.0, -2.0, -4.0, -math.inf, -8.0, -16.0, -32.0], requires_grad=True)
    mask = torch.tensor([0, 0, 1, 1, 0, 0, 1])
    sums = sequence_log_probs(log_probs, mask, torch.tensor([4, 3]))
    assert sums.tolist() == [-6.0, -16.0]
    sums.sum().backward()
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == [0, 1, 1, 0, 0, 1, 0]
    # a sequence's first token is not counted in the previous sequence
    sums = sequence_log_probs(torch.tensor([-1.0, -2.0, -4.0, -8.0]), torch.tensor([0, 1, 1, 1]), torch.tensor([2, 2]))
    assert sums.tolist() == [-1.0, -4.0]


def test_sums_are_float32() -> None:
    log_probs = torch.full((4097,), -0.01, dtype=torch.bfloat16)
    sums = sequence_log_probs(log_probs, torch.ones(4097), torch.tensor([4097]))
    assert sums.dtype == torch.float32
    assert sums.item() == pytest.approx(4096 * float(torch.tensor(-0.01, dtype=torch.bfloat16)), rel=1e-5)


def test_balanced_weights() -> None:
    assert balanced_weights(63, 37) == (1.0, 63 / 37)
    assert balanced_weights(1, 4) == (4.0, 1.0)
    assert balanced_weights(5, 0) == balanced_weights(0, 5) == (1.0, 1.0)


def test_mismatch() -> None:
    assert mismatch(["a", "b"]) == [1, 0]
    # two trajectories of a question side by side: the second rotation parts them
    assert mismatch(["a", "a", "b", "b"]) == [2, 3, 0, 1]
    assert mismatch(["a", "a", "a"]) == [1, 2, 0]
    with pytest.raises(ValueError, match="2 per rank"):
        mismatch(["a"])


@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=12))
def test_mismatch_uses_each_response_once_and_never_its_own(questions: list[str]) -> None:
    partners = mismatch(questions)
    assert sorted(partners) == list(range(len(questions)))
    assert all(partner != number for number, partner in enumerate(partners))


@pytest.mark.parametrize(
    "case", json.loads(EXPECTED.read_text())["cases"], ids=lambda case: f"{case['seed']}-{case['labels']}"
)
def test_agrees_with_trl(case: dict[str, Any]) -> None:
    batch, (policy, reference) = Batch.make(case["seed"], LABELS[case["labels"]]), models(case["seed"])

    def sums(model: TinyModel, mismatched: bool) -> torch.Tensor:
        ids, masks = batch.sequences(mismatched)
        # as in a packed batch: a position's value is about the next token, the last one's about nothing
        packed = torch.cat([torch.cat([model.next_log_probs(row), torch.full((1,), -9.0)]) for row in ids])
        return sequence_log_probs(packed, torch.cat(masks), torch.tensor([len(row) for row in ids]))

    kl = reference_point(sums(policy, True), sums(reference, True))
    losses = config().losses(sums(policy, False), sums(reference, False), batch.desirable, kl)
    losses.mean().backward()
    assert policy.weights.grad is not None
    assert losses.mean().item() == pytest.approx(case["loss"], abs=1e-5)
    assert kl.item() == pytest.approx(case["kl"], abs=1e-5)
    assert torch.allclose(policy.weights.grad, torch.tensor(case["gradient"]), rtol=0, atol=1e-5)
