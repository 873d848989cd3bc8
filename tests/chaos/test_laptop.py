"""Whatever is done to a job, it continues, or ends with a message, and the same command resumes from its checkpoint.

The tests of a module follow one another in the same run: what one of them has ended, the next one starts again. Each
works by itself, too.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from agentic_video.utils.checkpoints import TRACKER
from agentic_video.utils.errors import CANNOT_CONTINUE
from tests.chaos.job import Attempt, shared_memory
from tests.e2e.jobs import REPOSITORY

STEPS = 32
LAST_LINE = "from the last checkpoint"
"""In the last line of a job that the same command resumes."""
STEP = rf"step (\d+) of {STEPS}:"
MINUTE = 60.0
"""Seconds for which a process is stopped."""
HOUR = 3600

ENDS: Mapping[str, str] = {
    "launcher": "",
    "driver": r"verl stopped with status -9",
    "task-runner": r"ActorDiedError",
    "actor": r"WorkerDict.* has died|ActorDiedError",
    "llm-server": r"VideoServer.* has died|ActorDiedError",
    "engine": r"vLLM's engine .* has died|EngineDeadError",
    "agent-loop": r"AgentLoopWorker.* has died",
    "reward": r"RewardLoopWorker.* has died",
    "router": r"GroupRouter .* has died|groups of episodes failed in a row",
    "queue-controller": r"TransferQueueController .* has died",
    "queue-storage": r"SimpleStorageUnit .* has died",
    "raylet": r"Raylet is terminated",
    "gcs": r"Failed to connect to GCS",
}
"""The kinds of processes whose end is the job's, and what the command says then."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]


@dataclass
class Run:
    """A run that is ended and started again; ``temporary`` are the temporary folders of its attempts."""

    output: Path
    overrides: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    temporary: list[Path] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.output / "videozoomer-laptop" / "run-001"

    def saved(self) -> int:
        """Step of the newest checkpoint; 0 for none."""
        tracker = self.folder / "checkpoints" / TRACKER
        return int(tracker.read_text()) if tracker.is_file() else 0

    @contextlib.contextmanager
    def attempt(self, saved: int | None = None) -> Iterator[tuple[Attempt, int]]:
        """Start the command, and see it resume from a step (the tracker's); in the end nothing of it is left.

        Yields the job, in the middle of a step, and the number of the last step that it has finished.
        """
        saved = self.saved() if saved is None else saved
        before = shared_memory()
        job = Attempt(self.output, [f"trainer.total_training_steps={STEPS}", *self.overrides], self.environment)
        try:
            first = int(job.wait_for(STEP)[1])
            assert first == saved + 1
            self.temporary.append(Path(json.loads((self.folder / "run.json").read_text())["temporary"]))
            assert not any(folder.exists() for folder in self.temporary[:-1])  # a killed launcher's is gone now
            yield job, first
            assert job.left() == []
        finally:
            job.end()
        killed = job.status() == -signal.SIGKILL
        assert killed or not self.temporary[-1].exists()
        assert killed or named(shared_memory() - before) == []

    def check_metrics(self) -> None:
        """Each attempt's metrics go on from a checkpoint of the one before.

        verl saves a step's checkpoint before it logs its metrics: those of one that died in between are missing.
        """
        last = 0
        for file in sorted(self.folder.glob("metrics-*.jsonl")):
            lines = file.read_text().splitlines(keepends=True)
            steps = [json.loads(line)["step"] for line in lines if line.endswith("\n")]  # a full disk cuts one short
            if steps:
                assert steps == list(range(steps[0], steps[0] + len(steps))) and steps[0] <= last + 2
                last = max(last, steps[-1])
        assert last == STEPS


def named(files: set[Path]) -> list[str]:
    """Names of those of the files in ``/dev/shm`` that a job makes."""
    made = ("psm_", "verl_", "torch_", "ray", "plasma", "sem.")
    return sorted(file.name for file in files if file.name.startswith(made))


def kill(processes: Sequence[psutil.Process]) -> None:
    assert processes, "no such process"
    for process in processes:
        process.kill()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("killed"))


@pytest.mark.parametrize("kind", ENDS)
def test_killed(run: Run, kind: str) -> None:
    with run.attempt() as (job, _):
        time.sleep(0.5)  # into the next step's episodes
        kill(job.processes(kind))
        assert (job.status() == -signal.SIGKILL) == (kind == "launcher")
    assert re.search(ENDS[kind], job.output)
    if kind != "launcher":
        assert "verl stopped with status" in job.lines[-2]
        assert LAST_LINE in job.lines[-1]


def checkpoints(run: Run, count: int) -> int:
    """Have a run with so many checkpoints; the step of the newest."""
    if run.saved() < count:
        with run.attempt() as (job, first):
            job.wait_for(rf"step {first + count} of")
            job.send(signal.SIGINT)
            job.status()
    return run.saved()


def stop(job: Attempt, number: signal.Signals) -> None:
    """Tell a job to stop, which it does."""
    job.send(number)
    assert job.status() not in (0, -number)
    assert LAST_LINE in job.lines[-1]


def test_checkpoint_cut_short(run: Run) -> None:
    saved = checkpoints(run, 2)
    weights = run.folder / "checkpoints" / f"global_step_{saved}" / "actor" / "model_world_size_1_rank_0.pt"
    os.truncate(weights, weights.stat().st_size // 2)
    with run.attempt(saved=saved - 1) as (job, _):
        stop(job, signal.SIGINT)
    assert f"global_step_{saved}: actor/model_world_size_1_rank_0.pt" in job.output


def test_empty_tracker(run: Run) -> None:
    saved = checkpoints(run, 1)
    (run.folder / "checkpoints" / TRACKER).write_text("")
    with run.attempt(saved=saved) as (job, _):
        stop(job, signal.SIGTERM)
    assert TRACKER in job.output


def test_then_it_finishes(run: Run) -> None:
    with run.attempt() as (job, _):
        assert job.status() == 0
    run.check_metrics()


@dataclass
class World:
    """A job's surroundings that can go wrong: a disk, a clock, a judge."""

    run: Run
    clock: Path | None  # file with the seconds by which its clock is moved
    disk: Path | None  # folder of a small disk of its own
    judge: psutil.Popen | None = None
    job: Attempt | None = None
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def going(self) -> Attempt:
        """The job; started where it doesn't run."""
        if self.judge is None or not self.judge.is_running():
            self.judge = self.start_judge()
        if self.job is None:
            self.job, _ = self.stack.enter_context(self.run.attempt())
        return self.job

    def ended(self) -> Attempt:
        """The job, which ends by itself with a status that isn't 0."""
        assert self.job is not None
        job, self.job = self.job, None
        try:
            assert job.status() not in (0, -signal.SIGKILL)
            assert LAST_LINE in job.lines[-1]
        finally:
            self.stack.close()  # nothing of it is left
        return job

    def goes_on(self, after: int) -> None:
        """The job finishes two more steps than it had at a line of its output."""
        assert self.job is not None
        seen = [int(found[1]) for line in self.job.lines[:after] if (found := re.match(STEP, line))]
        self.job.wait_for(rf"step {seen[-1] + 3} of", after)  # the next one was half over

    def start_judge(self) -> psutil.Popen:
        port = re.search(r":(\d+)/", self.run.overrides[0])
        assert port is not None
        judge = psutil.Popen(
            [sys.executable, "-m", "tests.chaos.judge", port[1]], cwd=REPOSITORY, stdout=subprocess.PIPE
        )
        assert judge.stdout is not None
        judge.stdout.readline()
        return judge


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    output = tmp_path_factory.mktemp("hurt")
    beside = tmp_path_factory.mktemp("beside")
    clock = None
    environment = {}
    if shutil.which("cc"):
        clock, library = beside / "clock", beside / "clock.so"
        clock.write_bytes(struct.pack("d", 0.0))
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(clock)}
    mounted = os.geteuid() == 0 and not subprocess.call(
        ["mount", "-t", "tmpfs", "-o", "size=256m", "none", str(output)]
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    overrides = [
        f"agentic_video.judge.base_url=http://127.0.0.1:{port}/v1",
        "agentic_video.judge.model=judge",
        "agentic_video.judge.timeout=30",
        "agentic_video.judge.max_retries=2",
        f"agentic_video.reward.path={Path(__file__).with_name('judged.py')}",
        "agentic_video.reward.name=judged",
        "agentic_video.reward.mode=add",
        "agentic_video.reward.weight=0.1",
        "trainer.save_freq=2",
    ]
    made = World(Run(output, overrides, environment), clock, output if mounted else None)
    try:
        yield made
    finally:
        if made.job is not None:
            made.job.end()
        if made.judge is not None:
            made.judge.kill()
        if mounted:
            subprocess.run(["umount", "--lazy", str(output)], check=False)


def test_frame_store_killed(world: World) -> None:
    job = world.going()
    after = len(job.lines)
    kill(job.processes("frame-store"))
    world.goes_on(after)
    assert job.processes("frame-store")


@pytest.mark.parametrize("what", ["frame-store", "judge"])
def test_stopped_for_a_minute(world: World, what: str) -> None:
    job = world.going()
    assert world.judge is not None
    stopped = job.processes("frame-store") if what == "frame-store" else [world.judge]
    assert stopped
    for process in stopped:
        process.suspend()
    time.sleep(MINUTE)
    after = len(job.lines)
    for process in stopped:
        process.resume()
    world.goes_on(after)


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_clock_set(world: World, seconds: int) -> None:
    if world.clock is None:
        pytest.skip("needs a C compiler (cc), for a library that moves the clock of the job's processes")
    job = world.going()
    after = len(job.lines)
    with world.clock.open("r+b", buffering=0) as file:
        moved = struct.unpack("d", file.read(8))[0] + seconds
        file.seek(0)
        file.write(struct.pack("d", moved))
    world.goes_on(after)


def test_judge_gone(world: World) -> None:
    world.going()
    assert world.judge is not None
    world.judge.kill()
    world.judge.wait()
    job = world.ended()
    assert re.search(rf"{CANNOT_CONTINUE}: \d+ groups of episodes failed", job.output)
    assert "no verdict" in job.output


@pytest.mark.parametrize("what", ["checkpoint", "metrics"])
def test_disk_full(world: World, what: str) -> None:
    if world.disk is None:
        pytest.skip("needs root, for a small disk of its own (mount -t tmpfs)")
    job = world.going()
    after = len(job.lines)
    # checkpoints are written after even steps, metrics and episodes after all
    job.wait_for(rf"step \d*[{'13579' if what == 'checkpoint' else '02468'}] of", after)
    filler = world.disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass
    try:
        job = world.ended()
        assert "disk is full (0 MiB left)" in job.output
    finally:
        filler.unlink()


def test_then_it_finishes_too(world: World) -> None:
    job = world.going()
    assert job.status() == 0
    world.job = None
    world.stack.close()
    world.run.check_metrics()
