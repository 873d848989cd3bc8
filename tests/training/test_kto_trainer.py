"""What the trainer adds to the loss: micro-batches, metrics, configs. The whole job is tests/e2e/test_eva_kto.py."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import get_object

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import episode_limits, settings_of
from agentic_video.config.typed import ConfigError
from agentic_video.training.kto_trainer import batch_loss, check_batch_size, kto_loss, summary
from agentic_video.training.sft_kto.kto import KtoLoss

EVA = Path(__file__).resolve().parents[2] / "recipes" / "eva"
LOSS = KtoLoss(beta=0.5, undesirable_weight=2.0)


def nested(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def micro_batch(rows: slice) -> tuple[dict[str, Any], Any]:
    masks = [torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1])]
    data = {
        "loss_mask": nested(masks[rows]),
        "desirable": torch.tensor([True, False, True])[rows],
        "reference": torch.tensor([-2.0, -3.0, -1.0])[rows],
        "kl": torch.full((3,), 0.25)[rows],
        "dp_size": 2,
        "global_batch_size": 6,
    }
    return {"log_probs": nested(LOG_PROBS[rows])}, data


LOG_PROBS = [torch.linspace(-1, -2, 3), torch.linspace(-0.5, -2, 4), torch.linspace(-1, -3, 2)]


def test_micro_batches_add_up_to_the_batch() -> None:
    said = ([True, True], [False, True, True], [True])
    policy = torch.stack([row[:-1][mask].sum() for row, mask in zip(LOG_PROBS, said, strict=True)])
    data = micro_batch(slice(None))[1]
    losses = LOSS.losses(policy, data["reference"], data["desirable"], torch.tensor(0.25))
    shares, metrics = zip(*(batch_loss(LOSS, *micro_batch(rows)) for rows in (slice(0, 2), slice(2, 3))), strict=True)
    # 3 of 6 trajectories are this rank's; verl averages over the 2 ranks
    assert sum(shares).item() == pytest.approx(losses.sum().item() / 6 * 2)
    merged = summary({"grad_norm": 1.0, **{key: [[metric[key] for metric in metrics]] for key in metrics[0]}})
    rewards = LOSS.rewards(policy, data["reference"])
    assert merged.pop("grad_norm") == 1.0
    assert merged.pop("kto/margin") == pytest.approx((rewards[[0, 2]].mean() - rewards[1]).item())
    assert (merged.pop("kto/kl"), merged.pop("kto/desirable_share")) == pytest.approx((0.25, 2 / 3))
    expected = {"loss": losses, "reward": rewards, "log_prob": policy}
    assert merged == pytest.approx(
        {f"kto/desirable/{name}": values[[0, 2]].mean().item() for name, values in expected.items()}
        | {f"kto/undesirable/{name}": values[1].item() for name, values in expected.items()}
    )


def test_a_kind_that_is_missing_has_no_metrics() -> None:
    _, sums = batch_loss(LOSS, *micro_batch(slice(2, 3)))
    merged = summary(sums)
    assert merged["kto/desirable_share"] == 1.0
    assert not [name for name in merged if "undesirable" in name or "margin" in name]
    assert summary({"loss": 1.0}) == {"loss": 1.0}


def test_each_rank_needs_two_trajectories() -> None:
    for size, ranks in ((2, 1), (8, 4)):
        check_batch_size(size, ranks)
    for size, ranks in ((1, 1), (4, 4), (9, 4)):
        with pytest.raises(ValueError, match=rf"data\.train_batch_size={size} "):
            check_batch_size(size, ranks)


def test_the_loss_of_a_config() -> None:
    labels = [True] * 63 + [False] * 37
    assert kto_loss({"beta": 0.2}, labels) == KtoLoss(0.2)
    assert kto_loss({"balanced": True, "desirable_weight": 2}, labels) == KtoLoss(0.1, 2.0, 63 / 37)
    refused = {"gamma": 1, "beta": 0, "desirable_weight": -1.0, "undesirable_weight": math.nan}
    for key, value in refused.items():
        with pytest.raises(ConfigError) as caught:
            kto_loss({key: value}, labels)
        assert caught.value.key == f"kto.{key}"


@pytest.mark.parametrize("profile", ["kto", "kto_laptop"])
def test_configs(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_PATH", "/models/eva-sft")
    monkeypatch.setenv("TRAIN_FILES", "/data/labelled.jsonl")
    config = compose_recipe(EVA, profile)
    dataset = get_object(f"{config.data.custom_cls.path.removeprefix('pkg://')}.{config.data.custom_cls.name}")
    assert dataset.__name__ == "KtoDataset"
    assert kto_loss(config.kto, []) == KtoLoss(0.1, 1.0, 1.0)
    limits = episode_limits(config.data, settings_of(config.data))
    assert limits.prompt + limits.response <= config.data.max_token_len_per_gpu
    # the same episodes as GRPO's
    grpo = compose_recipe(EVA, "laptop" if profile == "kto_laptop" else "cluster")
    assert config.agentic_video.system == grpo.agentic_video.system
    assert (limits.prompt, limits.response) == (grpo.data.max_prompt_length, grpo.data.max_response_length)
    if profile == "kto":
        assert config.optim.lr == 2e-6
        assert config.data.train_batch_size >= 2 * config.trainer.n_gpus_per_node
