"""How long a run is."""


def epochs_for(steps: int, steps_per_epoch: int, epochs: int) -> int:
    """How many epochs a run needs: verl ends at the last one, whatever ``trainer.total_training_steps`` says.

    Args:
        steps: Of the run.
        steps_per_epoch: Of the data.
        epochs: That were asked for; never fewer.
    """
    return max(epochs, -(-steps // steps_per_epoch))
