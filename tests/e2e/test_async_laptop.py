"""An asynchronous laptop run that is interrupted goes on, with what it had played ahead."""

import re
import signal
from pathlib import Path

import pytest

from agentic_video.report.metrics import read_metrics
from tests.e2e.jobs import LAPTOP, followed, start

COMMAND = [
    *LAPTOP,
    "trainer.v1.trainer_mode=agentic_video_colocate_async",
    *("trainer.total_training_steps=5", "trainer.save_freq=1", "trainer.max_actor_ckpt_to_keep=2"),
    *("trainer.test_freq=-1", "trainer.val_before_train=False"),
]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


def attempt(output: Path, last: int) -> tuple[list[int], int]:
    """The steps that the command made, and its exit status; it is interrupted after a step (0: never)."""
    run = start(COMMAND, output)
    printed = followed(run, rf"step {last} of 5: ")
    if last:
        run.send_signal(signal.SIGINT)
        printed += followed(run)
    return [int(step) for step in re.findall(r"^step (\d+) of 5: ", printed, re.MULTILINE)], run.wait()


def trained_rollouts(checkpoint: Path) -> int:
    """How many rollouts a checkpoint holds whose questions it doesn't: they were trained on."""
    state = (checkpoint / "transfer_queue" / "controller_state.pkl").read_bytes()
    keys = {item.decode() for item in re.findall(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:_\d+_\d+)?", state)}
    return len([key for key in keys if "_" in key and key.partition("_")[0] not in keys])


def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    steps, status = attempt(tmp_path, 2)
    assert steps == [1, 2] and status != 0
    steps, status = attempt(tmp_path, 0)
    assert steps == [3, 4, 5] and status == 0
    (folder,) = tmp_path.glob("*/run-*")
    assert list(read_metrics(folder)) == [1, 2, 3, 4, 5]
    # what was played ahead comes back: groups that were whole, and questions that were being played (a fast machine may
    # have none of these)
    log = (folder / "log.txt").read_text(encoding="utf-8")
    assert re.search(r"Re-issued [1-9]\d* in-flight prompts for step 3|[1-9]\d* restored prompt groups", log)
    # of each step only its own: 4 questions, 8 rollouts of each
    checkpoints = [folder / "checkpoints" / f"global_step_{step}" for step in (4, 5)]
    assert [trained_rollouts(item) for item in checkpoints] == [32, 32]
    kept = {item.parent for name in ("actor", "transfer_queue") for item in folder.glob(f"checkpoints/*/{name}")}
    assert kept == set(checkpoints)
