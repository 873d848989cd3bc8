"""GRPO of LoRA adapters as a user runs it: the engine plays with them, so does a resumed run, and they are saved."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText

from agentic_video.report.losses import newest_checkpoint
from agentic_video.report.metrics import read_metrics, series

REPOSITORY = Path(__file__).resolve().parents[2]
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


def start(output: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "OUTPUT_DIR": str(output)}
    environment.pop("VERL_PLATFORM", None)  # the command sets what it needs by itself
    recipe = str(REPOSITORY / "recipes" / "videozoomer")
    command = [sys.executable, "-m", "agentic_video.cli", "run", recipe, "--profile", "laptop", *OVERRIDES]
    return subprocess.Popen(
        command, env=environment, cwd=output, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def weights(folder: Path) -> Mapping[str, torch.Tensor]:
    # As saved: verl's config names bfloat16 beside weights in float32.
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    state: Mapping[str, torch.Tensor] = model.state_dict()
    return state


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a run that was killed after its second step, and went on."""
    output = tmp_path_factory.mktemp("outputs")
    first = start(output)
    assert first.stdout is not None
    for line in first.stdout:
        print(line, end="", flush=True)
        if line.startswith("step 2 of 3:"):  # a checkpoint is written before this is said
            first.send_signal(signal.SIGKILL)
            break
    first.stdout.close()
    first.wait()
    time.sleep(15)  # the job notices that its launcher is gone
    second = start(output)
    assert second.stdout is not None
    finished = ""
    for line in second.stdout:
        finished += line
        print(line, end="", flush=True)
    assert second.wait() == 0, finished[-3000:]
    assert re.findall(r"^step (\d+) of 3:", finished, re.MULTILINE) == ["3"]
    (folder,) = output.glob("videozoomer-laptop/run-*")
    yield folder


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
