"""GRPO of LoRA adapters as a user runs it: the engine plays with them, so does a resumed run, and they are saved."""

import re
import shlex
from pathlib import Path

import pytest
import torch

from agentic_video.report.losses import newest_checkpoint
from agentic_video.report.metrics import read_metrics, series
from tests.e2e.jobs import LAPTOP, finished, killed, start, weights

RANK, ALPHA = 8, 16
OVERRIDES = [
    f"actor_rollout_ref.model.lora_rank={RANK}",
    f"actor_rollout_ref.model.lora_alpha={ALPHA}",
    # with a reference model: the actor without its adapters
    "actor_rollout_ref.actor.use_kl_loss=True",
    # large steps: an engine without the adapters, or with older ones, would be seen at once
    "actor_rollout_ref.actor.optim.lr=2e-3",
    "trainer.total_training_steps=3",
    "trainer.save_freq=1",
    "trainer.val_before_train=False",
]

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was killed after its second step, and resumed."""
    output = tmp_path_factory.mktemp("outputs")
    killed(start([*LAPTOP, *OVERRIDES], output), "step 2 of 3:")  # a checkpoint is written before this is printed
    printed = finished(start([*LAPTOP, *OVERRIDES], output))
    assert re.findall(r"^step (\d+) of 3:", printed, re.MULTILINE) == ["3"]
    (folder,) = output.glob("videozoomer-laptop/run-*")
    return folder


def test_the_engine_plays_with_the_adapters(run: Path) -> None:
    at, difference = series(read_metrics(run), "training/rollout_probs_diff_mean")
    print(f"mean difference of probabilities after steps {at}: {difference}")
    assert at == [1, 2, 3] and max(difference) < 1e-4
    at, loss = series(read_metrics(run), "actor/kl_loss")
    assert at == [1, 2, 3] and loss[-1] > 0.0


def test_the_checkpoint_is_the_base_model_with_the_adapters(run: Path) -> None:
    checkpoint = newest_checkpoint(run)
    assert checkpoint is not None
    words = shlex.split((run / "command.sh").read_text(), comments=True)
    (base,) = (word.partition("=")[2].strip("'") for word in words if word.startswith("actor_rollout_ref.model.path="))
    before, after = weights(Path(base)), weights(checkpoint)
    assert set(before) == set(after)
    state = torch.load(checkpoint.parent / "model_world_size_1_rank_0.pt", weights_only=False)
    adapters = {name: getattr(weight, "_local_tensor", weight) for name, weight in state.items() if ".lora_" in name}
    adapted = {
        name.removeprefix("base_model.model.").removesuffix(".lora_A.default.weight") + ".weight": (
            adapters[name.replace(".lora_A.", ".lora_B.")] @ low * (ALPHA / RANK)
        )
        for name, low in adapters.items()
        if ".lora_A." in name
    }
    assert adapted and not any("visual" in name for name in adapted)
    for name, weight in before.items():
        expected = weight + adapted[name] if name in adapted else weight
        assert torch.allclose(after[name], expected, atol=1e-6), name
    assert all((update.abs().max() > 1e-3) for update in adapted.values())
