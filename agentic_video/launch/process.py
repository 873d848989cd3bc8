"""The training's process: started, watched, stopped; and the machine left clean behind it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from agentic_video.launch.progress import Progress
from agentic_video.utils.process import signal_at_parent_end

STOP_SECONDS = 20.0
"""Seconds that a training has for stopping: less than the 30 that Slurm and Kubernetes leave a job between their first
signal and the last."""
SEGMENTS = ("psm_*", "verl_weights_*")
"""Names of the files in ``/dev/shm`` that a killed job may leave: of Python, and of verl's weights for vLLM."""


def stop_with_launcher() -> None:
    """In the job, before it starts: let it end with the launcher, whether that is killed or passes a signal on."""
    # When the launcher is killed, the kernel tells the job, so that the machine isn't left busy.
    signal_at_parent_end(signal.SIGTERM)
    # What a shell starts in the background inherits that it ignores this signal, by which the launcher stops the job.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_verl(
    command: Sequence[str], environment: Mapping[str, str], log: Path, total: int = 0, grace: float = STOP_SECONDS
) -> tuple[int, int]:
    """Run the training, print the interesting lines of its output and append all of it to a log; return its exit status
    and peak memory in bytes.

    A signal to stop is passed on as Ctrl-C; after ``grace`` seconds the training is killed.
    """
    with _appending(log) as write:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=stop_with_launcher,
        )
        memory = PeakMemory(os.getpid())

        def kill() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        killing = threading.Timer(grace, kill)
        killing.daemon = True

        def stop() -> None:
            process.send_signal(signal.SIGINT)
            if killing.ident is None:
                killing.start()

        assert process.stdout is not None
        progress = Progress(total)
        try:
            with on_stop_signal(stop):
                for line in process.stdout:
                    write(line)
                    if shown := progress.shown(line):
                        print(shown, flush=True)
                status = process.wait()
                if progress.reason:  # other lines, of what had to end with it, came after it
                    print(progress.reason, flush=True)
        except BaseException:  # e.g. no one reads the output any more
            stop()
            process.stdout.close()
            process.wait()
            raise
        finally:
            killing.cancel()
            kill()  # what the training itself has started and left
            peak = memory.stop()
    return status, peak


@contextlib.contextmanager
def on_stop_signal(stop: Callable[[], object]) -> Iterator[None]:
    """Call a function on Ctrl-C and on SIGTERM for as long as the context lasts."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, lambda *_: stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _appending(path: Path) -> Iterator[Callable[[str], None]]:
    """Append to a log. Lines for which the disk has no room are dropped: the training may need none."""
    with path.open("ab", buffering=0) as file:
        full = False

        def write(line: str) -> None:
            nonlocal full
            try:
                file.write(line.encode("utf-8", errors="replace"))
            except OSError as error:
                if not full:
                    print(f"error: {path}: {error.strerror}; lines of the log are dropped", file=sys.stderr, flush=True)
                full = True

        yield write


def shared_segments() -> set[Path]:
    """Shared-memory segments of Python programs, and those through which verl sends weights to vLLM."""
    folder = Path("/dev/shm")
    return {segment for pattern in SEGMENTS for segment in folder.glob(pattern)}


def remove_segments(candidates: set[Path]) -> None:
    """Remove those of our own shared-memory segments that no process maps: a killed engine can't unlink its own."""
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            mapped |= {line.split()[-1] for line in maps.read_text().splitlines() if "/dev/shm/" in line}
    for segment in candidates:
        with contextlib.suppress(OSError):
            if str(segment) not in mapped and segment.stat().st_uid == os.getuid():
                segment.unlink()


@contextlib.contextmanager
def clean_machine() -> Iterator[Path]:
    """Yield a temporary folder with a short path, for Ray's sockets; remove it and the job's shared memory after."""
    before = shared_segments()
    folder = Path(tempfile.mkdtemp(prefix="av-"))
    try:
        yield folder
    finally:
        remove_segments(shared_segments() - before)
        shutil.rmtree(folder, ignore_errors=True)


class PeakMemory:
    """Peak memory in bytes of a process's descendants (proportional set size, so that shared pages count once).

    A sample takes tens of milliseconds for each process.
    """

    def __init__(self, root: int, interval: float = 20.0):
        self.peak = 0
        self._root, self._interval = root, interval
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(self._interval):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        total = 0
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self._root).children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError, ValueError, IndexError):
                    text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
                    total += int(text.split("\nPss:")[1].split()[0]) * 1024
        return total

    def stop(self) -> int:
        """Stop watching; returns the peak."""
        self._done.set()
        self._thread.join()
        return self.peak
