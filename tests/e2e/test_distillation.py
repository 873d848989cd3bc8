"""On-policy distillation on the laptop: a teacher that is the policy itself has nothing to say."""

from pathlib import Path

import pytest

from agentic_video.report.metrics import read_metrics, series
from tests.e2e.test_recipes_laptop import run

ITSELF = (
    "distillation.distillation_loss.use_policy_gradient=False",  # the loss is what is looked at
    "actor_rollout_ref.actor.optim.lr=0.0",  # a recipe's mini-batches make several updates a step
    *("trainer.total_training_steps=2", "trainer.test_freq=-1", "trainer.val_before_train=False"),
)
LOSS = "distillation.distillation_loss.loss_mode"

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        ("videozoomer", [f"{LOSS}=k2", "agentic_video.teacher_view={overview_max_frames: 6}"]),
        ("videozoomer", [f"{LOSS}=forward_kl_topk", "distillation.distillation_loss.topk=8"]),
        ("framemind", [f"{LOSS}=k3"]),  # several sequences a rollout
    ],
    ids=["view", "topk", "sequences"],
)
def test_a_policy_that_is_its_own_teacher_differs_from_it_by_nothing(
    recipe: str, overrides: list[str], tmp_path: Path
) -> None:
    command = f"bash recipes/{recipe}/run_grpo.sh --profile laptop +method=distillation"
    metrics = read_metrics(run(command, tmp_path, *ITSELF, *overrides))
    steps, found = series(metrics, "actor/distillation/loss")
    assert steps == [1, 2] and max(map(abs, found)) < 1e-6
    assert all(0 < value < 1e3 for value in series(metrics, "actor/grad_norm")[1])
