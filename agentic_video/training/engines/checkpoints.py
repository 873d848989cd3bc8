"""Checkpoints of the actor: kept ones are counted over restarts, and ranks wait for slow disks."""

import shutil
from pathlib import Path
from typing import Any

from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

from agentic_video.training.engines.process_group import disk_patience
from agentic_video.utils.checkpoints import newest_whole, same_run, saved_before

ROLLOUTS = "transfer_queue"
"""Folder of the rollouts that an asynchronous trainer saves next to the actor."""


def newest_checkpoint(folder: str) -> str | None:
    """The newest whole checkpoint in a run's folder; verl fails on an empty tracker or a truncated checkpoint."""
    step, skipped = newest_whole(Path(folder).absolute())
    if skipped:
        print(f"agentic_video could not resume from the newest checkpoint: {skipped}", flush=True)
    return None if step is None else str(step)


class CheckpointManager(FSDPCheckpointManager):
    """verl's manager that also counts the checkpoints from before a restart (``max_actor_ckpt_to_keep``).

    Those of another run, from which this one starts, stay; with an old one its saved rollouts go, too.
    """

    _resumed_from: str | None = None

    def load_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> Any:
        self._resumed_from = local_path
        with disk_patience():
            return super().load_checkpoint(local_path, *args, **kwargs)

    def save_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> Any:
        before, self._resumed_from = self._resumed_from, None
        if before and not self.previous_saved_paths and same_run(Path(before), Path(local_path)):
            self.previous_saved_paths = [str(path) for path in saved_before(Path(before))]
        with disk_patience():
            return super().save_checkpoint(local_path, *args, **kwargs)

    def remove_previous_save_local_path(self, path: str | list[str]) -> None:
        super().remove_previous_save_local_path(path)
        for folder in map(Path, [path] if isinstance(path, str) else path):
            if folder.name == "actor":
                shutil.rmtree(folder.with_name(ROLLOUTS), ignore_errors=True)
