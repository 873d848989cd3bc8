"""A short GRPO job that is hurt while it runs, its processes by kind, and what is left of it."""

import contextlib
import re
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from tests.e2e.jobs import LAPTOP, start

SMALL = (
    "trainer.save_freq=1",
    "trainer.val_before_train=False",
    "trainer.test_freq=-1",
    "data.train_batch_size=2",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.rollout.n=4",
    "reward.num_workers=1",
)
"""A step of two groups of four episodes, and a checkpoint after each; and every kind of process."""
PATIENCE = 600.0
"""Seconds after which a job that neither continues nor ends counts as hanging."""
GONE_SECONDS = 180.0
"""Seconds that the processes of a job that has ended have for ending, too."""

KINDS: Mapping[str, str] = {
    "launcher": r"agentic_video\.cli run",
    "driver": r"verl\.trainer\.main_ppo",
    "task-runner": r"^ray::TaskRunnerV1",
    "actor": r"^ray::WorkerDict",
    "llm-server": r"^ray::VideoServer",
    "router": r"^ray::GroupRouter",
    "engine": r"^VLLM::EngineCore",
    "agent-loop": r"^ray::VideoAgentLoopWorker",
    "reward": r"^ray::RewardLoopWorker",
    "frame-store": r"^ray::StoreActor",
    "queue-controller": r"^ray::TransferQueueController",
    "queue-storage": r"^ray::SimpleStorageUnit",
    "raylet": r"raylet/raylet ",
    "gcs": r"gcs/gcs_server ",
}
"""The kinds of a job's processes, and how they are called."""


class Attempt:
    """One start of the command that trains, in the folder of all outputs."""

    def __init__(self, output: Path, overrides: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.started = time.monotonic()
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._seen: set[psutil.Process] = set()
        self._process = start([*LAPTOP, *SMALL, *overrides], output, **(environment or {}))
        self._launcher = psutil.Process(self._process.pid)
        for target in (self._read, self._look):
            threading.Thread(target=target, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            print(f"{time.monotonic() - self.started:6.1f} {line}", end="", flush=True)
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()

    def _look(self) -> None:
        """Notes all processes of the job: once their parents are dead, nothing leads to them."""
        while self._process.poll() is None:
            self._note()
            time.sleep(0.2)

    def _note(self) -> None:
        with contextlib.suppress(psutil.Error):
            self._seen |= {self._launcher, *self._launcher.children(recursive=True)}

    @property
    def output(self) -> str:
        """What the command has said so far."""
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, start: int = 0) -> "re.Match[str]":
        """Wait for a line, from a number on, that a pattern matches from its start."""
        end = time.monotonic() + PATIENCE
        with self._news:
            while True:
                for line in self.lines[start:]:
                    if found := re.match(pattern, line):
                        return found
                start = len(self.lines)
                ended = self._process.poll() is not None
                self._news.wait(1.0)
                if ended and len(self.lines) == start:
                    raise AssertionError(f"it ended with {self.status()} before {pattern!r}:\n{self.output[-3000:]}")
                assert time.monotonic() < end, f"it hangs before {pattern!r}:\n{self.output[-3000:]}"

    def status(self) -> int:
        """Wait for the command's end, and return its exit status."""
        try:
            return self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it hangs:\n{self.output[-3000:]}") from None

    def send(self, number: int) -> None:
        """Send the command a signal."""
        self._process.send_signal(number)

    def processes(self, kind: str) -> list[psutil.Process]:
        """The job's living processes of a kind."""
        self._note()
        return [process for process in alive(self._seen) if re.search(KINDS[kind], title(process))]

    def left(self) -> list[str]:
        """The titles of those of the job's processes that don't end after it."""
        ended = time.monotonic()
        while (living := alive(self._seen)) and time.monotonic() < ended + GONE_SECONDS:
            time.sleep(0.5)
            if time.monotonic() > ended + 5:
                print("still there:", *(f"{process.pid} {title(process)[:80]}" for process in living), flush=True)
        return [f"{process.pid} {title(process)[:120]}" for process in living]

    def end(self) -> None:
        """Kill whatever is left of the job."""
        self._note()
        for process in alive(self._seen):
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._process.wait()


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those of the processes that run; zombies don't."""
    living = []
    for process in list(processes):
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
    return living


def title(process: psutil.Process) -> str:
    """A process's command line; empty where it has none any more."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline()).strip()
    return ""


def shared_memory() -> set[Path]:
    """All files in ``/dev/shm`` that stay: Python removes a semaphore's name as soon as it is made."""
    there = set(Path("/dev/shm").iterdir())
    time.sleep(1)
    return {file for file in there if file.exists()}
