"""Runs the stages of a reproduction in order, each as the command that a user would type."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from agentic_video.launch.process import on_stop_signal, stop_with_launcher
from agentic_video.launch.reproduce.chain import ChainStage, Mode, filled
from agentic_video.launch.reproduce.reproduction import Reproduction, Step, shown
from agentic_video.launch.reproduce.state import StageRecord
from agentic_video.launch.reproduce.table import write_table
from agentic_video.launch.stage import TORCHRUN
from agentic_video.types.text import printable
from agentic_video.utils.errors import INTERRUPTED, SetupError
from agentic_video.utils.units import duration
from agentic_video.utils.workdir import lock

PROGRAM = (sys.executable, "-m", "agentic_video.cli")
"""``agentic-video`` of this environment, whatever is on the PATH."""
OWN = ("MODEL_PATH", "TRAIN_FILES", "VAL_FILES", "OUTPUT_DIR")
"""Variables with a stage's inputs: those of the user's shell are for other commands."""
CLUSTER = ("RAY_ADDRESS", "NNODES", "GPUS_PER_NODE")
"""Variables of the user's shell that a rehearsal doesn't get."""
LOOK_SECONDS = 0.2
"""Interval of looking for a log's new lines."""


def run_steps(reproduction: Reproduction, environment: Mapping[str, str]) -> int:
    """Run the stages that are to start, and write the table; return the command's exit status."""
    steps, options = reproduction.steps, reproduction.options
    busy = SetupError(f"{options.out}: another command runs there; wait for it, or choose another --out", key="--out")
    with lock(options.out / ".lock", busy):
        for number, step in enumerate(steps, 1):
            where = f"[{number}/{len(steps) + 1}] {step.stage.name}"
            if step.starts:
                if status := _run(reproduction, step, where, environment):
                    return status
                continue
            if step.action == "keep":
                _keep(reproduction, step.stage)
            print(f"{where}: {step.action}" + (f" ({step.note})" if step.note else ""), flush=True)
        print(f"[{len(steps) + 1}/{len(steps) + 1}] table: {shown(options.out / 'table.md')}\n", flush=True)
        print(write_table(reproduction), flush=True)
    return 0


def _keep(reproduction: Reproduction, stage: ChainStage) -> None:
    """Record a stage's outputs as complete, and as made with the present settings."""
    record = reproduction.state.records.get(stage.name, StageRecord())
    record = replace(record, settings=reproduction.settings(stage), finished=record.finished or _now())
    reproduction.state.write(stage.name, record)


def _run(reproduction: Reproduction, step: Step, where: str, environment: Mapping[str, str]) -> int:
    """Run one stage; returns the exit status of :func:`run_steps`, 0 to continue."""
    stage, state = step.stage, reproduction.state
    if step.action == "again" and (aside := state.set_aside(stage)):
        print(f"{where}: what it made is now in {shown(aside)}", flush=True)
    record = state.records.get(stage.name, StageRecord()) if step.action == "resume" else StageRecord()
    record = replace(record, settings=reproduction.settings(stage), attempts=record.attempts + 1)
    log, command = state.log(stage), reproduction.shell(stage)
    print(f"{where}: {stage.about}\n  $ {command}\n  log: {shown(log)}", flush=True)
    state.write(stage.name, record)
    state.home(stage).mkdir(exist_ok=True)
    start = time.monotonic()
    variables = stage_environment(reproduction, stage, environment)
    status, stopped = run_command([*PROGRAM, *reproduction.words(stage)], variables, log, command)
    seconds = time.monotonic() - start
    lacks = [] if status else state.lacks(stage)
    complete = not status and not lacks
    state.write(stage.name, replace(record, seconds=record.seconds + seconds, finished=_now() if complete else ""))
    if complete:
        print(f"{where}: done in {duration(seconds)}\n", flush=True)
    if stopped or status == INTERRUPTED:
        print(f"\nstopped in {stage.name}; the same command resumes from here", file=sys.stderr)
        return INTERRUPTED
    if not complete:
        print(failure(reproduction, stage, status, lacks), file=sys.stderr)
    return int(not complete)


def failure(reproduction: Reproduction, stage: ChainStage, status: int, lacks: list[str]) -> str:
    """The line about a stage that failed: what happened, which log to read, how to continue."""
    log = reproduction.state.log(stage)
    reason = f"ended with status {status}" if status else f"ended well, but made no {lacks[0]}"
    keep = ""
    if status == 1 and not reproduction.state.lacks(stage):  # commands' status when some items couldn't be done
        keep = f", or --keep {stage.name} continues with what it has made"
    return f"error: {stage.name} {reason}{_last_error(log)}; read {shown(log)}; the same command resumes it{keep}"


def _last_error(log: Path) -> str:
    """The last error line of a log's last command, in brackets; empty where there is none."""
    with contextlib.suppress(OSError):
        for line in reversed(log.read_text(encoding="utf-8", errors="replace").splitlines()[-400:]):
            if line.startswith("$ "):
                break
            if line.startswith("error: "):
                return f" ({printable(line.removeprefix('error: '))[:300]})"
    return ""


def stage_environment(reproduction: Reproduction, stage: ChainStage, environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of a stage's command, without the user's own inputs, or cluster in a rehearsal."""
    dropped = OWN + (CLUSTER if reproduction.chain.mode == "laptop" else ())
    if stage.trained in TORCHRUN:  # on several machines each would need the same command
        dropped += ("NNODES",)
    values = reproduction.values(stage)
    return {
        **{name: value for name, value in environment.items() if name not in dropped},
        **{name: filled(value, values) for name, value in stage.variables.items()},
        "PYTHONUNBUFFERED": "1",
    }


def run_command(command: list[str], environment: Mapping[str, str], log: Path, title: str) -> tuple[int, bool]:
    """Run a command, append its output to a log, and print the log's new lines meanwhile.

    The command writes into the file itself, so that neither a slow reader nor a process that it leaves behind keeps it.

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
        stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            process.send_signal(signal.SIGINT)

        try:
            with on_stop_signal(stop):
                ended = False
                while not ended:
                    ended = process.poll() is not None
                    if text := read.read():
                        sys.stdout.write(text.decode("utf-8", errors="replace"))
                        sys.stdout.flush()
                    if not ended:
                        time.sleep(LOOK_SECONDS)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    return process.returncode, stopped


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def default_mode(requested: Mode | None, data: bool, gpus: int, environment: Mapping[str, str]) -> Mode:
    """Choose the paper's chain where there is something to run it with (downloads, GPUs, Ray), else the rehearsal."""
    return requested or ("paper" if data or gpus or environment.get("RAY_ADDRESS") else "laptop")
