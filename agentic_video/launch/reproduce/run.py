"""Runs the stages of a reproduction one after the other, each as the command that a user would type."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from agentic_video.launch.process import stop_with_launcher
from agentic_video.launch.reproduce.chain import Mode, Stage, filled
from agentic_video.launch.reproduce.reproduction import Reproduction, Step, shown
from agentic_video.launch.reproduce.state import Record
from agentic_video.launch.reproduce.table import write_table
from agentic_video.launch.stage import TORCHRUN
from agentic_video.types.text import printable
from agentic_video.utils.errors import INTERRUPTED, SetupError
from agentic_video.utils.units import duration

PROGRAM = (sys.executable, "-m", "agentic_video.cli")
"""What ``agentic-video`` stands for: of this environment, whatever is on the PATH."""
OWN = ("MODEL_PATH", "TRAIN_FILES", "VAL_FILES", "OUTPUT_DIR")
"""Variables by which a stage is handed its inputs: those of the user's shell are for other commands."""
CLUSTER = ("RAY_ADDRESS", "NNODES", "GPUS_PER_NODE")
"""Variables of the user's shell that a rehearsal doesn't get."""
LOOK_SECONDS = 0.2
"""How often a log is looked at for new lines."""


def run_steps(reproduction: Reproduction, environment: Mapping[str, str]) -> int:
    """Run what is to start, and write the table.

    Returns:
        Exit status: 0 when all is whole, 1 when a stage failed, 130 when it was interrupted.

    Raises:
        SetupError: Another command is at it in the same folder, or a file can't be written.
    """
    steps, options = reproduction.steps, reproduction.options
    with _alone(options.out):
        for number, step in enumerate(steps, 1):
            where = f"[{number}/{len(steps) + 1}] {step.stage.name}"
            if not step.starts:
                if step.action == "keep":
                    _keep(reproduction, step.stage)
                print(f"{where}: {step.action}" + (f" ({step.note})" if step.note else ""), flush=True)
                continue
            if status := _run(reproduction, step, where, environment):
                return status
        print(f"[{len(steps) + 1}/{len(steps) + 1}] table: {shown(options.out / 'table.md')}\n", flush=True)
        print(write_table(reproduction), flush=True)
    return 0


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Make a folder, and hold it against other commands."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(f"{folder}: another command is at it; wait for it, or choose another --out") from None
        except OSError:  # a file system without locks
            pass
        yield


def _keep(reproduction: Reproduction, stage: Stage) -> None:
    """Let what a stage has made count as whole, made with the settings of now."""
    known = reproduction.state.records.get(stage.name, Record())
    settings = reproduction.settings(stage)
    reproduction.state.write(stage.name, replace(known, settings=settings, finished=known.finished or _now()))


def _run(reproduction: Reproduction, step: Step, where: str, environment: Mapping[str, str]) -> int:
    """Run one stage; the exit status of :func:`run_steps`, 0 to go on."""
    stage, state = step.stage, reproduction.state
    if step.action == "again" and (aside := state.set_aside(stage)):
        print(f"{where}: what it made is now in {shown(aside)}", flush=True)
    known = state.records.get(stage.name, Record()) if step.action == "go on" else Record()
    log = state.log(stage)
    print(f"{where}: {stage.about}\n  $ {reproduction.shell(stage)}\n  log: {shown(log)}", flush=True)
    record = replace(known, settings=reproduction.settings(stage), attempts=known.attempts + 1)
    state.write(stage.name, record)
    state.home(stage).mkdir(exist_ok=True)
    started = time.monotonic()
    status, stopped = run_command(
        [*PROGRAM, *reproduction.words(stage)],
        stage_environment(reproduction, stage, environment),
        log,
        reproduction.shell(stage),
    )
    record = replace(record, seconds=known.seconds + time.monotonic() - started)
    lacks = [] if status else state.lacks(stage)
    if not status and not lacks:
        state.write(stage.name, replace(record, finished=_now()))
        print(f"{where}: done in {duration(time.monotonic() - started)}\n", flush=True)
    else:
        state.write(stage.name, record)
    if stopped or status == INTERRUPTED:
        print(f"\nstopped in {stage.name}; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    if not status and not lacks:
        return 0
    print(failure(reproduction, stage, status, lacks), file=sys.stderr)
    return 1


def failure(reproduction: Reproduction, stage: Stage, status: int, lacks: list[str]) -> str:
    """The line about a stage that failed: what happened, which log to read, how to go on.

    Args:
        status: Of its command.
        lacks: Outputs that it should have made.
    """
    log = reproduction.state.log(stage)
    why = f"ended with status {status}" if status else f"ended well, but made no {lacks[0]}"
    keep = ""
    if status == 1 and not reproduction.state.lacks(stage):  # what commands say when some items couldn't be done
        keep = f", or --keep {stage.name} goes on with what it has made"
    return f"error: {stage.name} {why}{_last_error(log)}; read {shown(log)}; the same command resumes it{keep}"


def _last_error(log: Path) -> str:
    """The last line of a log that says what is wrong, in brackets; empty where none does."""
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-400:]
        begun = max((number for number, line in enumerate(lines) if line.startswith("$ ")), default=0)
        for line in reversed(lines[begun:]):
            if line.startswith("error: "):
                return f" ({printable(line.removeprefix('error: '))[:300]})"
    return ""


def stage_environment(reproduction: Reproduction, stage: Stage, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a stage's command.

    Args:
        environment: Of this command; what hands inputs to a stage is left out, and where a rehearsal would leave this
            machine.
    """
    dropped = OWN + (CLUSTER if reproduction.chain.mode == "laptop" else ())
    if stage.trained in TORCHRUN:  # on several machines each would have to be told the same command
        dropped += ("NNODES",)
    values = reproduction.values(stage)
    return {
        **{name: value for name, value in environment.items() if name not in dropped},
        **{name: filled(value, values) for name, value in stage.variables.items()},
        "PYTHONUNBUFFERED": "1",
    }


def run_command(command: list[str], environment: Mapping[str, str], log: Path, title: str) -> tuple[int, bool]:
    """Run a command into a log, and show the log's new lines meanwhile.

    The command writes into the file itself, so that neither a slow reader nor a process that it leaves behind keeps it.

    Args:
        command: Program and arguments.
        environment: All of its environment variables.
        log: Is appended to.
        title: First line of what is appended, after ``$``.

    Returns:
        Its exit status, negative for a signal, and whether this process was told to stop.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as written, log.open("rb") as read:
        read.seek(0, os.SEEK_END)
        written.write(f"$ {title}\n".encode())
        written.flush()
        read.readline()
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # it is told to stop here, once, and not by the terminal as well
            preexec_fn=stop_with_launcher,
        )
        stopped = []

        def stop(number: int, frame: object) -> None:
            stopped.append(number)
            process.send_signal(signal.SIGINT)

        previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while True:
                ended = process.poll() is not None
                _show(read.read())
                if ended:
                    break
                time.sleep(LOOK_SECONDS)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            if process.poll() is None:
                process.terminate()
                process.wait()
    return process.returncode, bool(stopped)


def _show(text: bytes) -> None:
    if text:
        sys.stdout.write(text.decode("utf-8", errors="replace"))
        sys.stdout.flush()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def default_mode(asked: Mode | None, data: bool, gpus: int, environment: Mapping[str, str]) -> Mode:
    """Which chain a command means: the paper's where there is something to run it with, else the rehearsal.

    Args:
        asked: What it says; None where it says nothing.
        data: Whether it names a folder of downloads.
        gpus: Of this machine.
        environment: Environment variables.
    """
    return asked or ("paper" if data or gpus or environment.get("RAY_ADDRESS") else "laptop")
