"""The training's process: started, watched, stopped."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from agentic_video.launch.machine import PeakMemory
from agentic_video.launch.progress import Progress
from agentic_video.utils.parent import signal_at_parent_end

STOP_SECONDS = 20.0
"""Seconds that a training has for stopping: less than the 30 that Slurm and Kubernetes leave a job between their first
signal and the last."""


def stop_with_launcher() -> None:
    """In the job, before it starts: let it end with the launcher, whether that is killed or passes a signal on."""
    # When the launcher is killed, the kernel tells the job, so that the machine isn't left busy.
    signal_at_parent_end(signal.SIGTERM)
    # What a shell starts in the background inherits that it ignores this signal, by which the launcher stops the job.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_verl(
    command: Sequence[str], environment: Mapping[str, str], log: Path, total: int = 0, grace: float = STOP_SECONDS
) -> tuple[int, int]:
    """Run the training, show what is interesting of its output and keep all of it.

    A signal to stop is passed on as ctrl-c.

    Args:
        command: Program and arguments.
        environment: All of its environment variables.
        log: File that the output is appended to.
        total: Number of steps; 0 where verl will say it.
        grace: Seconds that the training has for stopping, before it is killed.

    Returns:
        Exit status and peak memory in bytes.
    """
    with _log(log) as write:
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

        def stop(number: int, frame: object) -> None:
            process.send_signal(signal.SIGINT)
            if killing.ident is None:
                killing.start()

        previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        assert process.stdout is not None
        progress = Progress(total)
        try:
            for line in process.stdout:
                write(line)
                if shown := progress.shown(line):
                    print(shown, flush=True)
            status = process.wait()
            if progress.reason:  # other lines, of what had to end with it, came after it
                print(progress.reason, flush=True)
        except BaseException:  # nobody reads what is shown any more, say
            stop(signal.SIGINT, None)
            process.stdout.close()
            process.wait()
            raise
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            killing.cancel()
            kill()  # what the training itself has started and left
            peak = memory.stop()
    return status, peak


@contextlib.contextmanager
def _log(path: Path) -> Iterator[Callable[[str], None]]:
    """What appends to a log. Lines for which the disk has no room are left out: the training may do without."""
    with path.open("ab", buffering=0) as file:
        full = False

        def write(line: str) -> None:
            nonlocal full
            try:
                file.write(line.encode("utf-8", errors="replace"))
            except OSError as error:
                if not full:
                    print(
                        f"error: {path}: {error.strerror}; lines of the log are left out", file=sys.stderr, flush=True
                    )
                full = True

        yield write
