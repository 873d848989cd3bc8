"""Three steps of the laptop job with algorithms by name: VideoZoomer's with each.

FrameMind's turns are sequences, and some of Video-o3's ends aren't trained on.
"""

from pathlib import Path

import pytest

from agentic_video.report.metrics import read_metrics, series
from tests.config.test_methods import METHODS
from tests.e2e.test_recipes_laptop import run

SHORT = (
    *("trainer.total_training_steps=3", "trainer.val_before_train=False", "trainer.test_freq=-1"),
    # two updates a step: in the second, ratios aren't 1
    *("trainer.save_freq=-1", "actor_rollout_ref.actor.ppo_mini_batch_size=2"),
)

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(3600)]


def three_steps(command: str, folder: Path, *more: str) -> dict[int, dict[str, float]]:
    metrics = read_metrics(run(command, folder, *SHORT, *more))
    assert series(metrics, "episode/reward")[0] == [1, 2, 3]
    assert max(series(metrics, "training/rollout_probs_diff_mean")[1]) < 1e-4
    norms = series(metrics, "actor/grad_norm")[1]
    assert max(norms) > 0 and max(norms) < 100
    return metrics


@pytest.mark.parametrize("method", [name for name in METHODS if name != "distillation"])  # has its own test
def test_three_steps(method: str, tmp_path: Path) -> None:
    metrics = three_steps(f"bash recipes/videozoomer/run_grpo.sh --profile laptop +method={method}", tmp_path)
    if method == "gigpo":
        assert min(series(metrics, "training/turns_compared")[1]) > 0.3  # first turns all are
    if method == "taura":
        assert min(series(metrics, "training/turn_entropy_weight_max")[1]) > 1


@pytest.mark.parametrize("method", ["gmpo", "rloo"])
@pytest.mark.parametrize("system", ["framemind", "videoo3"])
def test_rollouts_of_several_sequences_and_untrained_ends(system: str, method: str, tmp_path: Path) -> None:
    three_steps(f"bash recipes/{system}/run_grpo.sh --profile laptop +method={method}", tmp_path)
