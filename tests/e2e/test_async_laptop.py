"""An asynchronous laptop run that is interrupted goes on, with what it had played ahead."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentic_video.report.metrics import read_metrics

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = [
    *(sys.executable, "-m", "agentic_video.cli", "run", str(REPOSITORY / "recipes" / "videozoomer")),
    *("--profile", "laptop"),
    "trainer.v1.trainer_mode=agentic_video_colocate_async",
    *("trainer.total_training_steps=5", "trainer.save_freq=1", "trainer.max_actor_ckpt_to_keep=2"),
    *("trainer.test_freq=-1", "trainer.val_before_train=False"),
]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


def attempt(output: Path, last: int) -> tuple[list[int], int]:
    """Start the command, and interrupt it after a step.

    Args:
        output: Its folder.
        last: The step; 0: it goes on to its end.

    Returns:
        The steps that it made, and its exit status.
    """
    environment = {**os.environ, "OUTPUT_DIR": str(output)}
    environment.pop("VERL_PLATFORM", None)  # the command sets what it needs by itself
    steps: list[int] = []
    with subprocess.Popen(
        COMMAND, env=environment, cwd=output, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            print(line, end="", flush=True)
            if found := re.match(r"step (\d+) of 5: ", line):
                steps.append(int(found[1]))
                if steps[-1] == last:
                    run.send_signal(signal.SIGINT)
    return steps, run.returncode


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
