"""EVA's KTO as torchrun starts it, on a tiny untrained model: against the same step worked out from its checkpoints."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler
from transformers import AutoModelForImageTextToText
from verl.utils import hf_processor, hf_tokenizer

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import episode_limits, settings_of
from agentic_video.toyworld.build.base import tokenizer_corpus
from agentic_video.toyworld.build.preferences import write_preferences
from agentic_video.toyworld.build.recipe import toy_recipe
from agentic_video.toyworld.build.scripted import Setting
from agentic_video.toyworld.model import ModelRecipe, build_model, build_tokenizer, save_checkpoint
from agentic_video.toyworld.oracles import turns_of
from agentic_video.toyworld.questions import build_world
from agentic_video.training.inputs.model_inputs import with_patches_of_raw
from agentic_video.training.sft_kto.datasets import KtoCollator, KtoDataset
from agentic_video.training.sft_kto.kto import KtoLoss, mismatch, reference_point, sequence_log_probs

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = REPOSITORY / "recipes" / "eva" / "config"
BATCH = 8

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


@dataclass(frozen=True)
class Job:
    """A model, labelled records, and a folder for runs."""

    folder: Path

    @property
    def overrides(self) -> list[str]:
        return [
            f"model.path={self.folder / 'model'}",
            f"data.train_files={self.folder / 'train.jsonl'}",
            f"data.val_files={self.folder / 'heldout.jsonl'}",
            f"data.train_batch_size={BATCH}",
        ]

    def run(self, name: str, *overrides: str) -> tuple[dict[int, dict[str, float]], str]:
        """Metrics by step, and the whole output."""
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
        command += ["-m", "agentic_video.training.kto_trainer", "--config-dir", str(CONFIG)]
        command += ["--config-name", "kto_laptop", *self.overrides, "trainer.logger=[console]"]
        command += [f"trainer.default_local_dir={self.folder / name}", f"hydra.run.dir={self.folder / 'hydra'}"]
        command += ["trainer.max_ckpt_to_keep=null"]
        variables = {"VERL_PLATFORM": "cpu", "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, *overrides],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-5000:]
        metrics: dict[int, dict[str, float]] = {}
        for step, line in re.findall(r"step:(\d+) - (.*)", done.stdout):
            pairs = (pair.rsplit(":", 1) for pair in line.split(" - "))
            metrics.setdefault(int(step), {}).update({key: float(value) for key, value in pairs})
        return metrics, done.stdout


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder, tokenizer = tmp_path_factory.mktemp("kto"), build_tokenizer(tokenizer_corpus())
    config = compose_recipe(CONFIG.parent, "kto_laptop", ["data.train_files=none", "model.path=none"])
    settings, world = settings_of(config), toy_recipe(config).world
    limits = episode_limits(config.data, settings)
    save_checkpoint(build_model(tokenizer, ModelRecipe()), tokenizer, folder / "model")
    # the resume is amid an epoch: which batch comes next is then known
    made = build_world(folder, train=34, heldout=BATCH, seed=3, recipe=world)
    setting = Setting(settings.system, limits, turns_of(settings.system))
    write_preferences(folder, made, folder / "model", setting, world)
    return Job(folder)


@pytest.fixture(scope="module")
def full(job: Job) -> tuple[dict[int, dict[str, float]], str]:
    return job.run("full", "trainer.total_training_steps=3", "trainer.save_freq=2", "trainer.test_freq=3")


@pytest.fixture(scope="module")
def resumed(job: Job, full: Any) -> dict[int, dict[str, float]]:
    return job.run("full", "trainer.total_training_steps=4", "trainer.save_freq=-1")[0]


def test_the_first_step_knows_no_difference(full: tuple[dict[int, dict[str, float]], str]) -> None:
    first = full[0][1]
    assert first["kto/kl"] == first["kto/desirable/reward"] == first["kto/undesirable/reward"] == 0
    assert first["train/loss"] == 0.5
    assert first["train/grad_norm"] > 0
    assert sorted(full[0]) == [1, 2, 3]
    assert full[0][3]["val/loss"] != 0.5


def log_prob(model: Any, processor: Any, sample: dict[str, Any]) -> torch.Tensor:
    whole = with_patches_of_raw(processor, sample["multi_modal_inputs"])
    inputs = {key: value for key, value in whole.items() if key != "images_seqlens"}
    ids = sample["input_ids"]
    with torch.no_grad():
        logits = model(input_ids=ids[None], position_ids=sample["position_ids"][:, None], **inputs).logits[0]
    chosen = logits.log_softmax(-1)[:-1].gather(-1, ids[1:, None]).squeeze(-1)
    padded = torch.cat([chosen, torch.zeros(1)])
    return sequence_log_probs(padded, sample["loss_mask"], torch.tensor([len(ids)]))[0]


@pytest.mark.parametrize("step", [3, 4])
def test_a_step_equals_the_one_worked_out_from_the_checkpoints(
    job: Job, full: tuple[dict[int, dict[str, float]], str], resumed: dict[int, dict[str, float]], step: int
) -> None:
    """Also after a resume: there the reference must still be the model that training started from."""
    config = compose_recipe(CONFIG.parent, "kto_laptop", job.overrides)
    start = job.folder / "model"
    tokenizer, processor = hf_tokenizer(str(start)), hf_processor(str(start))
    dataset = KtoDataset(config.data.train_files, tokenizer, config.data, processor)
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0, shuffle=True, drop_last=True)
    sampler.set_epoch((step - 1) // (len(dataset) // BATCH))
    at = (step - 1) % (len(dataset) // BATCH) * BATCH
    samples = [dataset[number] for number in list(sampler)[at : at + BATCH]]
    partners = mismatch([sample["question"] for sample in samples])
    collator = KtoCollator(processor)
    pairs = [collator.pair(sample, samples[partner]) for sample, partner in zip(samples, partners, strict=True)]
    policy, reference = (
        AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32).eval()
        for path in (job.folder / "full" / f"global_step_{step - 1}" / "huggingface", start)
    )

    def sums(model: Any, rows: list[dict[str, Any]]) -> torch.Tensor:
        return torch.stack([log_prob(model, processor, row) for row in rows])

    kl = reference_point(sums(policy, pairs), sums(reference, pairs))
    desirable = torch.tensor([sample["desirable"] for sample in samples])
    losses = KtoLoss().losses(sums(policy, samples), sums(reference, samples), desirable, kl)
    logged = (full[0] if step == 3 else resumed)[step]
    assert kl > 0.1
    assert logged["kto/kl"] == pytest.approx(kl.item(), rel=1e-3)
    assert logged["train/loss"] == pytest.approx(losses.mean().item(), abs=1e-4)
    assert logged["kto/desirable_share"] == desirable.float().mean().item()


def test_a_resumed_run_continues(resumed: dict[int, dict[str, float]]) -> None:
    assert sorted(resumed) == [4]


def test_lora_uses_its_own_weights_as_the_reference(job: Job) -> None:
    metrics, output = job.run(
        "lora",
        "trainer.total_training_steps=3",
        "model.lora_rank=4",
        "model.lora_alpha=8",
        "optim.lr=1e-2",
        "trainer.save_freq=-1",
        "kto.balanced=True",
    )
    # one model is loaded, not two
    assert output.count("contains") == 1
    assert metrics[1]["kto/kl"] == metrics[1]["kto/desirable/reward"] == 0
    assert metrics[1]["kto/desirable/loss"] == 0.5 < metrics[1]["kto/undesirable/loss"]
    assert abs(metrics[3]["kto/desirable/reward"]) > 1e-3
