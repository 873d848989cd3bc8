"""verl's SFT trainer with a frozen vision tower, hidden spans, and an error for a batch that never fills.

Started on every device by torchrun: ``-m agentic_video.training.sft --config-dir ... --config-name sft``.
"""

from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf, open_dict
from verl.trainer.sft_trainer import SFTTrainer
from verl.utils.checkpoint.checkpoint_handler import extract_step
from verl.utils.device import auto_set_device
from verl.utils.distributed import destroy_global_process_group

from agentic_video.config.settings import settings_of
from agentic_video.training.engines.actor import freeze_vision
from agentic_video.training.engines.checkpoints import newest_checkpoint
from agentic_video.training.engines.process_group import join_torchrun_group
from agentic_video.training.ppo.runs import keep_wandb_run, take_epochs


class VideoSFTTrainer(SFTTrainer):
    """``SFTTrainer`` that honours ``trainer.freeze_vision_tower`` and ``trainer.total_training_steps`` over epochs."""

    def _build_dataloader(self) -> None:
        super()._build_dataloader()
        size = self.config.data.train_batch_size
        for name, samples, loader in (
            ("train", self.train_dataset, self.train_dataloader),
            ("val", self.val_dataset, self.val_dataloader),
        ):
            if loader is None:
                continue
            used = len(loader) * size
            if not used:
                raise ValueError(f"data.train_batch_size={size}: only {len(samples)} samples in data.{name}_files")
            if name == "val" and used < len(samples) and self.rank == 0:
                print(
                    f"data.val_files: {used} of {len(samples)} samples are used, since verl takes whole batches of "
                    f"data.train_batch_size={size}",
                    flush=True,
                )

    def _build_ckpt_handler(self) -> None:
        trainer = self.config.trainer
        if trainer.get("resume_mode", "auto") == "auto" and trainer.get("resume_from_path") is None:
            with open_dict(self.config):
                trainer.resume_from_path = newest_checkpoint(trainer.default_local_dir)
                if trainer.resume_from_path is None:
                    trainer.resume_mode = "disable"
        super()._build_ckpt_handler()
        load = self.ckpt_handler._load_dataloader_state

        def load_dataloader_state(checkpoint: str) -> None:
            # A loader that has given out an epoch's last batch would give out the next epoch as an empty one.
            if (extract_step(checkpoint) or 0) % self.steps_per_epoch:
                load(checkpoint)

        self.ckpt_handler._load_dataloader_state = load_dataloader_state

    def _init_engine(self) -> None:
        super()._init_engine()
        take_epochs(self)
        self.engine.hidden_probability = settings_of(self.config).sft.hidden_probability
        if self.config.trainer.freeze_vision_tower:
            count = freeze_vision(self.engine.module, self.config.trainer.freeze_merger)
            if self.rank == 0:
                print(f"vision tower frozen: {count} weights are not trained", flush=True)

    def fit(self) -> None:
        if self.rank == 0:
            keep_wandb_run(self.config.trainer)
        super().fit()


def train(config: DictConfig, trainer: type[VideoSFTTrainer]) -> None:
    """Train in this process, one of a job's."""
    auto_set_device(config)
    join_torchrun_group()
    resolved: Any = OmegaConf.create(OmegaConf.to_container(config, resolve=True))
    trainer(config=resolved).fit()
    destroy_global_process_group()


@hydra.main(config_path=None, config_name=None, version_base=None)
def main(config: DictConfig) -> None:
    """Train as the config says."""
    train(config, VideoSFTTrainer)


if __name__ == "__main__":
    main()
