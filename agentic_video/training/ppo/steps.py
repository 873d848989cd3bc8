"""How long a run is."""

from typing import Any


def epochs_for(steps: int, steps_per_epoch: int, epochs: int) -> int:
    """How many epochs a run needs: verl ends at the last one, whatever ``trainer.total_training_steps`` says.

    Args:
        steps: Of the run.
        steps_per_epoch: Of the data.
        epochs: That were asked for; never fewer.
    """
    return max(epochs, -(-steps // steps_per_epoch))


def take_epochs(trainer: Any) -> None:
    """Have one of verl's trainers, which knows its data by now, run the epochs that its steps need."""
    config = trainer.config.trainer
    config.total_epochs = epochs_for(trainer.total_training_steps, trainer.steps_per_epoch, config.total_epochs)
