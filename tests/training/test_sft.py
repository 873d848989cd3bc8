"""What the trainer adds to verl's. Whole jobs are tests/e2e/test_sft_laptop.py."""

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.sft_trainer import SFTTrainer
from verl.utils import tensordict_utils as tu

from agentic_video.training.ppo.runs import take_epochs
from agentic_video.training.sft import VideoSFTTrainer

SAMPLES, BATCH = 16, 4


class Killed(Exception):
    """In place of a machine that is taken away."""


class Trainer(VideoSFTTrainer):
    """verl's loop, loader and checkpoints around a model that only notes what it is shown."""

    def __init__(self, folder: Path, killed_after: int | None = None, **trainer: Any):
        settings = {"total_epochs": 3, "total_training_steps": None, "default_local_dir": str(folder), "logger": []}
        data = {"use_dynamic_bsz": True, "max_token_len_per_gpu": 1, "micro_batch_size_per_gpu": 1, "pad_mode": "no"}
        self.config = OmegaConf.create(
            {
                "trainer": {"project_name": "p", "experiment_name": "e", "freeze_vision_tower": False}
                | settings
                | trainer,
                "model": {"use_remove_padding": True},
                "data": data,
                "agentic_video": {"system": {"name": "videozoomer"}},
            }
        )
        self.rank, self.device_name, self.global_batch_size = 0, "cpu", BATCH
        self.shown: list[tuple[int, ...]] = []
        self.killed_after = killed_after
        samples = [{"n": torch.tensor(number)} for number in range(SAMPLES)]
        self.train_sampler = DistributedSampler(samples, num_replicas=1, rank=0, drop_last=True)
        self.train_dataloader = StatefulDataLoader(samples, BATCH, sampler=self.train_sampler, drop_last=True)
        self.val_dataloader = None
        self.engine: Any = SimpleNamespace(
            is_mp_src_rank_with_outputs=lambda: True,
            get_data_parallel_rank=lambda: 0,
            save_checkpoint=lambda local_path, **_: self.write(Path(local_path)),
            load_checkpoint=lambda local_path: None,
        )
        self.training_client: Any = SimpleNamespace(train_batch=self.train_batch, step_profile=lambda: None)
        self.model_config: Any = SimpleNamespace(tokenizer=SimpleNamespace(pad_token_id=0), lora_rank=0)
        self.start_profile_step = self.end_profile_step = -1
        self.steps_per_epoch = len(self.train_dataloader)
        self.save_freq, self.test_freq = self.steps_per_epoch, -1  # after each epoch, as the recipes have it
        steps = self.config.trainer.total_training_steps
        self.total_training_steps = steps or self.steps_per_epoch * self.config.trainer.total_epochs
        self.config.model.lora_adapter_path = None
        take_epochs(self)
        self._build_ckpt_handler()
        self.resume_global_step = self.ckpt_handler.load_checkpoint()

    def _get_batch_seqlens(self, data: Any) -> list[int]:
        return [1] * BATCH

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        torch.save({}, folder / "model_world_size_1_rank_0.pt")

    def train_batch(self, data: Any) -> Any:
        if len(self.shown) == self.killed_after:
            raise Killed
        self.shown.append(tuple(data["n"].tolist()))
        return tu.get_tensordict(tensor_dict={}, non_tensor_dict={"metrics": {"loss": 0.0}})

    def train(self) -> list[tuple[int, ...]]:
        with suppress(Killed):
            self.fit()
        return self.shown


@pytest.mark.parametrize("killed_after", [5, 7, 9])
def test_a_resumed_run_sees_the_same_data(killed_after: int, tmp_path: Path, one_rank: None) -> None:
    whole = Trainer(tmp_path / "whole").train()
    assert len(whole) == 12 and sorted(sum(whole[4:8], ())) == list(range(16))
    folder = tmp_path / "killed"
    assert Trainer(folder, killed_after).train() == whole[:killed_after]
    # from the last epoch's checkpoint
    assert Trainer(folder).train() == whole[killed_after // 4 * 4 :]
    assert (folder / "latest_checkpointed_iteration.txt").read_text() == "12"


def test_a_run_of_so_many_steps_has_the_epochs_that_it_needs(tmp_path: Path, one_rank: None) -> None:
    assert len(Trainer(tmp_path, total_epochs=1, total_training_steps=10).train()) == 10
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "10"


@pytest.mark.parametrize("name", ["train", "val"])
def test_samples_that_fill_no_batch_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer: Any = VideoSFTTrainer.__new__(VideoSFTTrainer)
    trainer.config, trainer.rank = OmegaConf.create({"data": {"train_batch_size": 8}}), 0
    full, few = (range(8), [range(8)]), (range(7), [])
    trainer.train_dataset, trainer.train_dataloader = few if name == "train" else full
    trainer.val_dataset, trainer.val_dataloader = few
    monkeypatch.setattr(SFTTrainer, "_build_dataloader", lambda self: None)
    with pytest.raises(ValueError, match=rf"train_batch_size=8.*7 samples in data\.{name}_files"):
        trainer._build_dataloader()
