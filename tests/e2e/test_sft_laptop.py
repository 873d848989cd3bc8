"""SFT as a user runs it on a laptop: killed half way, started again, with what it promises afterwards."""

import re
import subprocess
from pathlib import Path

import pytest
import torch

from agentic_video.report.losses import newest_checkpoint
from agentic_video.report.metrics import read_metrics, series
from tests.e2e.jobs import REPOSITORY, finished, killed, start, weights

TOY = "agentic_video.toyworld"
SMALL = [
    f"++{TOY}.train=24",
    f"++{TOY}.heldout=16",
    f"++{TOY}.base.reading=8",
    f"++{TOY}.base.reading_steps=2",
    f"++{TOY}.base.reading_batch=4",
    "data.train_batch_size=8",
    "trainer.total_training_steps=6",
    "trainer.save_freq=2",
    "trainer.test_freq=6",
]
"""A world and a base model that are made in seconds: they teach nothing, and everything runs."""

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


def start_sft(folder: Path, system: str, *overrides: str) -> "subprocess.Popen[str]":
    command = ["bash", str(REPOSITORY / "recipes" / system / "run_sft.sh"), "--profile", "laptop", *SMALL, *overrides]
    return start(command, folder, XDG_CACHE_HOME=str(folder / "cache"))


def changed(output: str, run: Path) -> set[str]:
    """Weights of a run's last checkpoint that aren't those of the base model that its output names."""
    (base,) = set(re.findall(r"^\[toyworld\] (?:found|built) (\S+/base-\w+)", output, re.MULTILINE))
    checkpoint = newest_checkpoint(run)
    assert checkpoint is not None
    before, after = weights(Path(base)), weights(checkpoint)
    assert set(before) == set(after)
    return {name for name, weight in before.items() if not torch.equal(weight, after[name])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sft")


def test_a_killed_run_resumes_from_its_checkpoint(folder: Path) -> None:
    killed(start_sft(folder, "videozoomer"), "step 3 of 6:")  # a checkpoint was written after step 2
    output = finished(start_sft(folder, "videozoomer"))
    assert re.findall(r"^step (\d+) of 6: loss", output, re.MULTILINE) == ["3", "4", "5", "6"]
    (run,) = (folder / "videozoomer-sft-laptop").glob("run-*")
    steps, losses = series(read_metrics(run), "train/loss")
    assert steps == [1, 2, 3, 4, 5, 6]
    assert losses[-1] < losses[0]
    assert len(series(read_metrics(run), "val/loss")[1]) == 1
    names = changed(output, run)
    assert names and not any("visual" in name for name in names)  # frozen, as the paper has it


def test_lora_in_two_processes_leaves_a_merged_checkpoint(folder: Path) -> None:
    overrides = ("trainer.n_gpus_per_node=2", "model.lora_rank=4", "model.lora_alpha=32")
    output = finished(start_sft(folder, "framemind", *overrides))
    (run,) = (folder / "framemind-sft-laptop").glob("run-*")
    names = changed(output, run)
    assert names and all("language_model.layers" in name and name.endswith("proj.weight") for name in names)
