"""verl's SFT trainer with what it lacks: a vision tower that stays as it is, and a word about a batch that never fills.

Started on every device by torchrun: ``python -m torch.distributed.run ... -m agentic_video.training.sft
--config-dir recipes/<system>/config --config-name sft``. Everything else is stock verl, configured.
"""

from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf
from verl.trainer.sft_trainer import SFTTrainer
from verl.utils.checkpoint.checkpoint_handler import extract_step
from verl.utils.device import auto_set_device
from verl.utils.distributed import destroy_global_process_group, initialize_global_process_group

from agentic_video.config.settings import settings_of
from agentic_video.training.ppo.steps import take_epochs
from agentic_video.training.seams.patches import freeze_vision


class VideoSFTTrainer(SFTTrainer):
    """``SFTTrainer`` that honours ``trainer.freeze_vision_tower``, and trains as many steps as it is told to.

    ``trainer.total_training_steps`` counts over epochs: there are as many of them as it needs.

    Raises:
        ValueError: Too few samples for one batch.
    """

    def _build_dataloader(self) -> None:
        super()._build_dataloader()
        size = self.config.data.train_batch_size
        for name, samples, loader in (
            ("train", self.train_dataset, self.train_dataloader),
            ("val", self.val_dataset, self.val_dataloader),
        ):
            if loader is not None:
                check_batches(name, len(samples), len(loader), size)
                used = len(loader) * size
                if name == "val" and used < len(samples) and self.rank == 0:
                    print(
                        f"data.val_files: {used} of {len(samples)} samples are used, since verl takes whole batches of "
                        f"data.train_batch_size={size}",
                        flush=True,
                    )

    def _build_ckpt_handler(self) -> None:
        super()._build_ckpt_handler()
        go_on = self.ckpt_handler._load_dataloader_state

        def load_dataloader_state(checkpoint: str) -> None:
            # The loader that had given out an epoch's last batch would give out the next epoch as an empty one.
            if (extract_step(checkpoint) or 0) % self.steps_per_epoch:
                go_on(checkpoint)

        self.ckpt_handler._load_dataloader_state = load_dataloader_state

    def _init_engine(self) -> None:
        super()._init_engine()
        take_epochs(self)
        self.engine.hidden_probability = settings_of(self.config).sft.hidden_probability
        if self.config.trainer.freeze_vision_tower:
            count = freeze_vision(self.engine.module, self.config.trainer.freeze_merger)
            if self.rank == 0:
                print(f"vision tower frozen: {count} weights are left as they are", flush=True)


def check_batches(name: str, samples: int, batches: int, size: int) -> None:
    """Look whether there is anything to train on: verl leaves out a batch that isn't full, and says nothing.

    Args:
        name: ``train`` or ``val``.
        samples: How many there are.
        batches: How many full batches they make.
        size: Samples of a batch.

    Raises:
        ValueError: There is no batch.
    """
    if batches == 0:
        raise ValueError(f"data.{name}_files: {samples} samples don't fill a batch of data.train_batch_size={size}")


def train(config: DictConfig, trainer: type[VideoSFTTrainer]) -> None:
    """Train in this process, one of a job's.

    Args:
        config: The run's config; it may refer to the environment.
        trainer: What trains.
    """
    auto_set_device(config)
    initialize_global_process_group()
    resolved: Any = OmegaConf.create(OmegaConf.to_container(config, resolve=True))
    trainer(config=resolved).fit()
    destroy_global_process_group()


@hydra.main(config_path=None, config_name=None, version_base=None)
def main(config: DictConfig) -> None:
    """Train as the config says."""
    train(config, VideoSFTTrainer)


if __name__ == "__main__":
    main()
