"""The folder of a run: found again by the command that made it, cleaned of what a killed attempt left."""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentic_video.launch.inputs import Inputs, named_inputs
from agentic_video.launch.machine import remove_segments, shared_segments
from agentic_video.launch.options import ChangedData
from agentic_video.utils.checkpoints import LOADER, STEP
from agentic_video.utils.content import checkpoint_digest, files_digest
from agentic_video.utils.errors import SetupError
from agentic_video.utils.journal import write_whole

RUN_FILE = "run.json"
"""Written into a run's folder, so that the same command finds it again and resumes it."""

BEAT_FILE = "alive"
LOCK_FILE = ".lock"
"""In the folder of all runs; held while a launcher looks for its run."""
HOST = socket.gethostname()
WORLD = "world="
"""Start of the entry of an identity that says on how many machines and GPUs a run runs."""
CONTENT = "content of "
"""Start of the entries of an identity that say what is in the files of data and model."""
OTHER_ROWS = ".other_rows"
"""Ending that takes a dataloader's state out of verl's sight, where it belongs to rows that are gone."""
BEAT_SECONDS = 10.0
"""How often a launcher shows to other machines that it is alive."""


def run_identity(
    overrides: Sequence[str], environment: Mapping[str, str], world: str = "", inputs: Inputs | None = None
) -> list[str]:
    """What makes two commands the same run: the overrides, the model, the data and the machines.

    Files are named, and noted by their content, too, where this machine has them.

    Args:
        world: Machines and GPUs, to which verl's checkpoints belong: those of two nodes can't be loaded on one.
        inputs: What overrides and environment name; None for what the environment does.
    """
    named = ("MODEL_PATH", "TRAIN_FILES", "VAL_FILES")
    files = [f"{name}={environment[name]}" for name in named if environment.get(name)]
    inputs = inputs or named_inputs("grpo", overrides, environment)
    digests = {
        "MODEL_PATH": checkpoint_digest(inputs.model) if inputs.model else "",
        "TRAIN_FILES": files_digest(inputs.train) if inputs.train else "",
        "VAL_FILES": files_digest(inputs.val) if inputs.val and inputs.val != inputs.train else "",
    }
    contents = [f"{CONTENT}{name}={digest}" for name, digest in digests.items() if digest]
    return [*overrides, *files, *([f"{WORLD}{world}"] if world else []), *contents]


def but_for_content(identity: Sequence[str]) -> list[str]:
    """An identity without what its files hold."""
    return [entry for entry in identity if not entry.startswith(CONTENT)]


def changed_content(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """Names of inputs (``TRAIN_FILES``, ...) whose content both identities know and that differ in it."""
    contents = [
        dict(entry.removeprefix(CONTENT).split("=", 1) for entry in entries if entry.startswith(CONTENT))
        for entries in (before, now)
    ]
    return [name for name, digest in contents[0].items() if contents[1].get(name, digest) != digest]


def check_content(root: Path, identity: Sequence[str], changed: ChangedData) -> None:
    """Make sure that the unfinished run which a command would resume has read what its files hold now.

    Raises:
        SetupError: It hasn't, and nothing was said of that; or the record of a run can't be read.
    """
    if changed != "refuse":
        return
    for folder in sorted(root.glob("run-*"), reverse=True):
        record = read_record(folder)
        if record is None or record["finished"] or _names(record["identity"]) != _names(identity):
            continue
        differing = changed_content(record["identity"], identity)
        if differing and not _alive(folder, record):
            raise SetupError(
                f"{folder}: this unfinished run of the same command read something else: the content of "
                f"{' and '.join(differing)} has changed; --changed-data new begins another run, --changed-data "
                "continue goes on from its last checkpoint with the files as they are, from their first row; or put "
                "the old files back"
            )
        return


def forget_rows(checkpoints: Path) -> None:
    """Take the dataloader's state and rows under way out of a run's checkpoints: verl begins with the first rows."""
    for state in [*checkpoints.glob(f"{STEP}*/{LOADER}"), *checkpoints.glob(f"{STEP}*/transfer_queue")]:
        state.rename(state.with_name(f"{state.name}{OTHER_ROWS}-{time.time_ns()}"))


def _names(identity: Sequence[str]) -> list[str]:
    return [entry for entry in but_for_content(identity) if not entry.startswith("machine=")]


def run_folder(
    root: Path, identity: Sequence[str], changed: ChangedData = "refuse", checkpoints: str = ""
) -> tuple[Path, bool]:
    """The folder of this run below ``root``: an unfinished one of the same command, else a new one.

    A run whose launcher is still alive, here or on another machine, is left alone. One that differs only in its number
    of machines is said: its checkpoints can't be loaded, but its model can.

    Args:
        root: Folder of all runs of a recipe, stage and profile.
        identity: See :func:`run_identity`.
        changed: What becomes of a run that has read something else from the same files.
        checkpoints: The folder of its checkpoints; empty for its own.

    Returns:
        The folder, and whether it is an unfinished run that will be resumed.

    Raises:
        SetupError: The record of a run can't be read: it might be this one. Or see :func:`check_content`.
    """
    root.mkdir(parents=True, exist_ok=True)
    with _alone(root):
        check_content(root, identity, changed)
        existing = sorted(root.glob("run-*"))
        for folder in reversed(existing):
            record = read_record(folder)
            if record is None or record["finished"]:
                continue
            same = but_for_content(record["identity"]) == but_for_content(identity)
            differing = changed_content(record["identity"], identity)
            if same and not (differing and changed == "new") and not _alive(folder, record):
                if record.get("host", HOST) == HOST:
                    clean_leftovers(record)
                if differing:
                    print(f"{folder.name} goes on with other content of {' and '.join(differing)}", flush=True)
                if {"TRAIN_FILES"} & {*differing}:
                    forget_rows(Path(checkpoints) if checkpoints else folder / "checkpoints")
                write_record(folder, identity=list(identity), launcher=_process(os.getpid()), host=HOST)
                return folder, True
            if _but_for_size(record["identity"]) == _but_for_size(identity) and (folder / "model").exists():
                print(
                    f"{folder.name} is the same run on other machines, and verl's checkpoints fit only their number; "
                    f"to go on from its weights: MODEL_PATH={folder / 'model'}",
                    flush=True,
                )
        numbers = [int(folder.name.removeprefix("run-")) for folder in existing if folder.name[4:].isdecimal()]
        folder = root / f"run-{max(numbers, default=0) + 1:03d}"
        folder.mkdir()
        write_record(folder, identity=list(identity), finished=False, launcher=_process(os.getpid()), host=HOST)
    return folder, False


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Let one launcher at a time look for its run: two must not resume the same one, or make the same folder.

    Where a file system has no locks they go on without.
    """
    with (root / LOCK_FILE).open("w") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_record(folder: Path) -> dict[str, Any] | None:
    """What is noted about a run; None where nothing is.

    Raises:
        SetupError: It can't be read.
    """
    file = folder / RUN_FILE
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(file, str(error)) from None
    kinds = {"identity": list, "finished": bool, "launcher": list}
    for key, kind in kinds.items():
        if not isinstance(record, dict) or not isinstance(record.get(key), kind):
            raise _damaged(file, f"it has no {key!r}")
    if len(record["launcher"]) != 2 or not all(isinstance(number, int | float) for number in record["launcher"]):
        raise _damaged(file, "its 'launcher' is no process")
    return dict(record)


def _damaged(file: Path, why: str) -> SetupError:
    return SetupError(
        f"{file}: is damaged ({why}): it may be the run to go on with; put it right, or remove "
        f"{file.parent} to begin anew"
    )


def _but_for_size(identity: Sequence[str]) -> list[str]:
    return [entry for entry in but_for_content(identity) if not entry.startswith(WORLD)]


@contextlib.contextmanager
def launcher_alive(folder: Path) -> Iterator[None]:
    """Show, for as long as the context lasts, to launchers on other machines that this run has one."""
    done = threading.Event()

    def beat() -> None:
        while True:
            with contextlib.suppress(OSError):
                (folder / BEAT_FILE).touch()
            if done.wait(BEAT_SECONDS):
                return

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def metrics_file(folder: Path) -> Path:
    """Where the next attempt of a run writes its metrics; each attempt has a file of its own."""
    return folder / f"metrics-{len(list(folder.glob('metrics-*.jsonl'))) + 1:03d}.jsonl"


def link_model(folder: Path, checkpoint: Path) -> None:
    """Let ``model`` in a run's folder lead to its last checkpoint in Hugging Face's format."""
    link = folder / "model"
    link.unlink(missing_ok=True)
    # a relative one goes with its folder
    link.symlink_to(checkpoint.relative_to(folder) if checkpoint.is_relative_to(folder) else checkpoint.resolve())


def write_record(folder: Path, **fields: Any) -> None:
    """Note facts about a run: what it is, whether it has finished, what it took.

    Raises:
        SetupError: What is noted already can't be read.
    """
    record = read_record(folder) or {}
    write_whole(folder / RUN_FILE, [json.dumps({**record, **fields})])


def clean_leftovers(record: Mapping[str, Any]) -> None:
    """Remove what a killed attempt left: its temporary folders, and shared memory that it made and nobody maps."""
    for name in ("temporary", "forks"):
        if record.get(name):
            shutil.rmtree(record[name], ignore_errors=True)
    # By name: the times of files say nothing where the clock was set.
    if "segments" in record:
        remove_segments({segment for segment in shared_segments() if segment.name not in record["segments"]})


def _process(pid: int) -> list[int]:
    """A process's number, and its start in clock ticks since the machine's: the time of day changes with its clock."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return [pid, int(fields[19])]  # field 22 of proc(5); those before the bracket hold the program's name


def _alive(folder: Path, record: Mapping[str, Any]) -> bool:
    """Whether a run's launcher still runs.

    Another machine's processes can't be seen: whether its launcher still touches a file is waited for.
    """
    if record.get("host", HOST) == HOST:
        number, started = record["launcher"]
        with contextlib.suppress(OSError):
            return _process(int(number)) == [number, started]
        return False
    before = _modified(folder / BEAT_FILE)
    print(f"{folder.name} was started on {record['host']}; seeing whether it still runs there", flush=True)
    for _ in range(3):
        time.sleep(BEAT_SECONDS)
        if _modified(folder / BEAT_FILE) != before:
            return True
    return False


def _modified(path: Path) -> float:
    """When a file was written, in seconds since 1970; 0 for one that is gone."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0
