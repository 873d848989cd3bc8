"""The losses that ``+method=...`` names, each against its paper's formula written out, token by token."""

from collections.abc import Callable
from functools import cache
from math import exp, isfinite
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import ActorConfig

from tests.config.configs import ENVIRONMENT, composed
from tests.docs.commands import listing_with
from tests.training.programs import result_of
from tests.training.test_loss_means import Row, losses

MASK = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]])
"""A rollout of three trained tokens around an observation, one of a single token, and an untrained one."""
OLD = torch.tensor([[-1.0, -2.0, -9.0, -0.5], [-1.5, -3.0, -3.0, -3.0], [-1.0, -1.0, -1.0, -1.0]])
MOVED = torch.tensor([[0.5, -0.3, 4.0, 0.05], [-0.7, 2.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0]])
ADVANTAGES = torch.tensor([[2.0], [-1.0], [0.0]]) * MASK


@cache
def actor_of(method: str) -> Any:
    return composed("videozoomer", "cluster", f"+method={method}").actor_rollout_ref.actor


def loss_of(method: str, moved: torch.Tensor = MOVED, **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of the batch with the method's keys, and its gradient by log-probability."""
    actor = actor_of(method)
    names = ("clip_ratio_low", "clip_ratio_high", "tau_pos", "tau_neg", "loss_agg_mode")
    config = ActorConfig(
        strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **{name: actor[name] for name in names}
    )
    config.global_batch_info.update(loss_scale_factor=4)
    batch = {"old_log_prob": OLD, "advantages": ADVANTAGES, "response_mask": MASK.bool(), **more}
    log_prob = (batch["old_log_prob"] + moved).requires_grad_()
    loss, _ = get_policy_loss_fn(actor.policy_loss.loss_mode)(
        log_prob=log_prob, loss_agg_mode=config.loss_agg_mode, config=config, **batch
    )
    loss.backward()
    assert log_prob.grad is not None
    return loss.detach(), log_prob.grad


def clipped(ratio: float, advantage: float, low: float, high: float) -> float:
    return -min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)


# The log-ratios of the two rollouts' trained tokens, whose advantages are 2 and -1.
FIRST, SECOND = (0.5, -0.3, 0.05), -0.7


def gspo() -> float:
    """One ratio a sequence, clipped; the mean over sequences."""
    whole = exp(sum(FIRST) / 3)
    return (clipped(whole, 2, 3e-4, 4e-4) + clipped(exp(SECOND), -1, 3e-4, 4e-4)) / 2


def cispo() -> float:
    """Ratios above 1.2 weigh as 1.2; the mean over tokens of weight, advantage and log-probability."""
    logs = (-1.0 + 0.5, -2.0 - 0.3, -0.5 + 0.05)
    first = [-min(exp(moved), 1.2) * 2 * log for moved, log in zip(FIRST, logs, strict=True)]
    return (sum(first) - exp(SECOND) * -1 * (-1.5 - 0.7)) / 4


def sapo() -> float:
    """A sigmoid of the ratio with the slope 1 at 1; the mean over sequences of the mean over tokens."""

    def gate(moved: float, tau: float) -> float:
        return 4 / tau / (1 + exp(-tau * (exp(moved) - 1)))

    return (-2 * sum(gate(moved, 1.0) for moved in FIRST) / 3 + gate(SECOND, 1.05)) / 2


def gmpo() -> float:
    """The geometric mean of ratios, a rising one clipped at exp(0.4) where the advantage is positive.

    verl's own mean is over all rows of a micro-batch; of these one is untrained.
    """
    return (-2 * exp((0.4 - 0.3 + 0.05) / 3) + exp(-0.4)) / 3


def dr_grpo() -> float:
    """Tokens added up over a constant, 4 here; the mean over rollouts."""
    first = sum(clipped(exp(moved), 2, 0.2, 0.27) for moved in FIRST)
    return (first + clipped(exp(SECOND), -1, 0.2, 0.27)) / 4 / 2


def dapo() -> float:
    """The mean over tokens, with a higher upper clip."""
    first = sum(clipped(exp(moved), 2, 0.2, 0.28) for moved in FIRST)
    return (first + clipped(exp(SECOND), -1, 0.2, 0.28)) / 4


PAPERS: dict[str, Callable[[], float]] = {made.__name__: made for made in (gspo, cispo, sapo, gmpo, dr_grpo, dapo)}


@pytest.mark.parametrize("method", PAPERS)
def test_the_loss_is_the_papers(method: str) -> None:
    assert float(loss_of(method)[0]) == pytest.approx(PAPERS[method](), abs=1e-5)


def test_gradients() -> None:
    """Where a clip holds, PPO's tokens have none, CISPO's keep theirs; GSPO's are all clipped here."""
    assert (loss_of("dapo")[1] == 0).tolist() == [[True, False, True, False], [True, True, True, True], [True] * 4]
    assert loss_of("cispo")[1][0].tolist() == pytest.approx([-1.2 * 2 / 4, -exp(-0.3) * 2 / 4, 0, -exp(0.05) * 2 / 4])
    assert not loss_of("gspo")[1].any()
    # a ratio of exp(3e-4 / 2): inside
    inside, part = loss_of("gspo", torch.full_like(MOVED, 1.5e-4))[1], exp(1.5e-4)
    assert inside[0].tolist() == pytest.approx([-2 * part / 3 / 2, -2 * part / 3 / 2, 0, -2 * part / 3 / 2])


@pytest.mark.parametrize("method", PAPERS)
@given(st.lists(st.floats(-3, 3, width=32), min_size=12, max_size=12))
def test_tokens_of_the_environment_have_no_influence(method: str, noise: list[float]) -> None:
    elsewhere = torch.tensor(noise).reshape(3, 4) * (1 - MASK)
    expected, _ = loss_of(method)
    found, gradient = loss_of(
        method, MOVED + elsewhere, old_log_prob=OLD - elsewhere / 2, advantages=ADVANTAGES + 2 * elsewhere
    )
    torch.testing.assert_close(found, expected)
    assert not (gradient * (1 - MASK)).any()


SHORT, LONG = Row(("q", 0), 2, 1.0, 0.2), Row(("q", 1), 4, -1.0, 0.3)
HEAD, TAIL = Row(("q", 1), 1, -1.0, 0.3), Row(("q", 1), 3, -1.0, 0.3)
PADDING = Row(("pad", 0), 0, 0.0, 0.5)


@pytest.mark.parametrize("micro_batch", [1, 2, 8])
@pytest.mark.parametrize(
    "ranks",
    [[[SHORT, LONG]], [[SHORT, PADDING], [LONG, PADDING]], [[SHORT, HEAD], [TAIL, PADDING]]],
    ids=["two rollouts", "two ranks and padding", "a rollout of two sequences"],
)
def test_gmpo_is_a_mean_over_rollouts(ranks: list[list[Row]], micro_batch: int) -> None:
    """However they are cut into sequences and micro-batches."""
    value, _ = losses(ranks, "token-mean", micro_batch, policy_loss={"loss_mode": "geo_mean"})
    assert value == pytest.approx((-exp(0.2) + exp(0.3)) / 2, abs=1e-5)


def test_the_pages_own_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_algos, "POLICY_LOSS_REGISTRY", dict(core_algos.POLICY_LOSS_REGISTRY))
    exec(listing_with("unclipped", "methods.md"), {})
    own = ActorConfig(strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=1, loss_agg_mode="token-mean")
    loss, _ = get_policy_loss_fn("unclipped")(
        old_log_prob=OLD,
        log_prob=OLD + MOVED,
        advantages=ADVANTAGES,
        response_mask=MASK.bool(),
        loss_agg_mode="token-mean",
        config=own,
    )
    assert float(loss) == pytest.approx((exp(SECOND) - 2 * sum(map(exp, FIRST))) / 4, abs=1e-5)


@pytest.mark.slow
def test_three_updates_of_verls_actor(tmp_path: Path) -> None:
    """Each loss raises what earned more and lowers what earned less, by micro-batches, with an untrained episode."""
    found = result_of("tests.training.methods", str(tmp_path), *PAPERS, environment=ENVIRONMENT)
    assert set(found) == set(PAPERS)
    for method, made in found.items():
        better, worse, _ = made["moved"]
        assert better > 0 > worse, method
        assert len(made["metrics"]) == 2 and all(map(isfinite, made["metrics"].values())), method
