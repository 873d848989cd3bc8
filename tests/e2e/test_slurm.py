"""The Slurm example as it stands, on two hosts of its own: a rehearsal that is told to stop, queues itself again, and
goes on from its checkpoint."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentic_video.report.metrics import read_metrics
from tests.e2e.hosts import HOSTS, REPOSITORY, needs, two_hosts

SCRIPT = "examples/slurm/videozoomer.sbatch"
KEY = "sk-a-key-for-the-judge"
SECONDS = 1800

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(3600), needs("slurmctld", "slurmd", "munged", "sbatch")]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """A folder that two hosts with Slurm share."""
    with two_hosts(tmp_path, "10.79.0"):
        environment = {**os.environ, "NETWORK": "10.79.0"}
        subprocess.run([*HOSTS, "slurm", str(tmp_path), "16"], env=environment, check=True)
        yield tmp_path


def until(what: str, holds: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        said = log.read_text(errors="replace")[-3000:] if log.exists() else "no log"
        assert time.monotonic() < end, f"{what}: {said}"
        time.sleep(2)


def test_stopped_queued_again_and_finished(cluster: Path) -> None:
    keys = cluster / "keys.env"
    keys.write_text(f"OPENAI_API_KEY={KEY}\n", encoding="utf-8")
    keys.chmod(0o600)
    outputs = cluster / "outputs"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
        "SLURM_CONF": str(cluster / "slurm.conf"),
        "PROFILE": "rehearsal",
        "PYTHON": sys.executable,
        "OUTPUT_DIR": str(outputs),
        "AGENTIC_VIDEO_SECRETS_FILE": str(keys),
        # for an environment whose package is another checkout's
        "PYTHONPATH": str(REPOSITORY),
        "RAY_SETTINGS": "PYTHONPATH",
    }

    def slurm(*command: str) -> str:
        done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    sizes = ["--gpus-per-node=0", "--cpus-per-task=16", f"--output={cluster}/%x-%j.log"]
    overrides = ["trainer.total_training_steps=4", "trainer.test_freq=-1", "trainer.val_before_train=False"]
    job = slurm("sbatch", "--parsable", *sizes, SCRIPT, *overrides).strip()
    log = cluster / f"videozoomer-{job}.log"

    def state() -> str:
        found = re.search(r"JobState=(\S+)", slurm("scontrol", "show", "job", job))
        assert found
        return found[1]

    def said() -> str:
        return log.read_text(errors="replace") if log.exists() else ""

    # a checkpoint is written after step 2
    until("step 3", lambda: "step 3 of 4" in said() or state() not in ("PENDING", "RUNNING"), log)
    assert state() == "RUNNING", said()[-3000:]
    slurm("scancel", "--batch", "--signal=USR1", job)  # what --signal sends before the time is up
    until("queued again", lambda: "resuming in" in said() or state() in ("FAILED", "COMPLETED"), log)
    until("end", lambda: state() not in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED"), log)
    print(said())
    assert state() == "COMPLETED", said()[-3000:]

    assert len(re.findall(r"^Ray at 10\.79\.0\.\d:\d+: 2 of 2 nodes: (?:n1 n2|n2 n1)$", said(), re.MULTILINE)) == 2
    (run,) = outputs.glob("videozoomer-rehearsal/run-*")
    assert list(read_metrics(run)) == [1, 2, 3, 4]
    assert len(list(run.glob("metrics-*.jsonl"))) == 2
    left = [file for file in cluster.rglob("*") if file.is_file() and file != keys and file.stat().st_size < 1 << 24]
    assert log in left and [file for file in left if KEY.encode() in file.read_bytes()] == []
