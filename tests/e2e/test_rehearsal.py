"""A cluster's job on two Ray nodes that were started with an empty environment, joined from outside as the README says.

One node is killed in the middle of a step; the same command then goes on from the last checkpoint.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentic_video.launch.process import shared_segments
from agentic_video.report.metrics import read_metrics, series
from tests.e2e.jobs import REPOSITORY, finished, followed, start

RAY = str(Path(sys.executable).with_name("ray"))

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]


class Nodes:
    """Ray nodes on this machine, the head first; their logs and sockets are in a folder with a short path."""

    def __init__(self, folder: Path):
        self._folder = folder
        # what a scheduler gives a node: nothing of the job
        self._clean = {"PATH": os.environ["PATH"], "HOME": str(folder), "RAY_AUTH_MODE": "disabled"}
        self.address = "127.0.0.1:26379"
        head = ["--head", "--port=26379", "--ray-client-server-port=26380", "--include-dashboard=false"]
        self.running = [self._start(*head, f"--temp-dir={folder}/ray")]

    def join(self) -> None:
        """Start one more."""
        self.running.append(self._start(f"--address={self.address}", "--include-log-monitor=false"))

    def kill(self, number: int) -> None:
        """Let one end as a machine that loses its power: it and what it started."""
        os.killpg(self.running.pop(number).pid, signal.SIGKILL)

    def close(self) -> None:
        """Stop all."""
        while self.running:
            self.kill(-1)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        sizes = ("--num-gpus=1", "--num-cpus=16", f"--object-store-memory={512 << 20}", "--disable-usage-stats")
        log = self._folder / f"node-{time.monotonic_ns()}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [RAY, "start", *arguments, *sizes, "--block"],
                env=self._clean,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + 180
        while "Ray runtime started" not in log.read_text(errors="replace"):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.5)
        return process


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with tempfile.TemporaryDirectory(prefix="av-") as folder:
        started = Nodes(Path(folder))
        started.join()
        yield started
        started.close()


def rehearse(output: Path, nodes: Nodes) -> "subprocess.Popen[str]":
    script = REPOSITORY / "recipes" / "videozoomer" / "run_grpo.sh"
    variables = {"RAY_ADDRESS": nodes.address, "RAY_AUTH_MODE": "disabled", "HF_TOKEN": "hidden-token"}
    return start(["bash", str(script), "--profile", "rehearsal"], output, **variables)


@pytest.fixture(scope="module")
def run(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """The run's folder, and the output of the attempt that lost a node and of the one that finished."""
    output = tmp_path_factory.mktemp("outputs")
    before = shared_segments()
    first = rehearse(output, nodes)
    lost = followed(first, r"step 2 of 3:")  # a checkpoint is written after it
    tracker = "videozoomer-rehearsal/run-001/checkpoints/latest_checkpointed_iteration.txt"
    while not (output / tracker).exists() and first.poll() is None:
        time.sleep(0.2)
    nodes.kill(1)
    lost += followed(first)
    assert first.wait() not in (0, -9), lost[-3000:]
    nodes.join()
    printed = finished(rehearse(output, nodes))
    assert shared_segments() <= before
    return output / "videozoomer-rehearsal" / "run-001", lost, printed


def test_a_lost_node_is_reported_and_the_same_command_resumes(run: tuple[Path, str, str]) -> None:
    folder, lost, printed = run
    assert "the same command" in lost and "last checkpoint" in lost
    assert re.findall(r"^step (\d+) of 3:", printed, re.MULTILINE) == ["3"]
    assert (folder / "checkpoints" / "latest_checkpointed_iteration.txt").read_text() == "3"


def test_rollout_and_actors_agree(run: tuple[Path, str, str]) -> None:
    metrics = read_metrics(run[0])
    differences = series(metrics, "training/rollout_probs_diff_mean")[1]
    assert len(differences) == 3 and max(differences) < 1e-4
    assert min(series(metrics, "training/rollout_actor_probs_pearson_corr")[1]) > 0.999


def test_settings_of_a_paper_s_run(run: tuple[Path, str, str]) -> None:
    metrics = read_metrics(run[0])
    # the reference model's KL, which is 0 before the first update, the entropy's term, validation
    losses = series(metrics, "actor/kl_loss")[1]
    assert len(losses) == 3 and all(0 <= loss < 1 for loss in losses)
    assert min(series(metrics, "actor/entropy_loss")[1]) > 0
    # the attempt that goes on validates before its first step, too
    assert series(metrics, "val-core/toyworld/acc/mean@1")[0] == [0, 2, 3]
    log = (run[0] / "log.txt").read_text()
    for key in ("enable_gradient_checkpointing", "use_fused_kernels", "enable_prefix_caching"):
        assert f"'{key}': True" in log


def test_two_nodes_worked(run: tuple[Path, str, str]) -> None:
    folder = run[0] / "checkpoints" / "global_step_3" / "actor"
    assert sorted(file.name for file in folder.glob("model_world_size_2_rank_*.pt")) == [
        "model_world_size_2_rank_0.pt",
        "model_world_size_2_rank_1.pt",
    ]
    assert (run[0] / "model" / "model.safetensors").is_file()
    assert json.loads((run[0] / "run.json").read_text())["finished"]


def test_keys_stay_out_of_sight(run: tuple[Path, str, str]) -> None:
    for file in run[0].rglob("*"):
        if file.suffix in (".txt", ".json", ".jsonl", ".sh", ".yaml", ".env", ".md"):
            assert "hidden-token" not in file.read_text(errors="replace"), file
