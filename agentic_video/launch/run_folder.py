"""The folder of a run: found again by the command that made it, cleaned of what a killed attempt left."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from agentic_video.launch.machine import remove_segments, shared_segments

RUN_FILE = "run.json"
"""Written into a run's folder, so that the same command finds it again and resumes it."""


def run_identity(overrides: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """What makes two commands the same run: the overrides, the model and the data."""
    named = ("MODEL_PATH", "TRAIN_FILES", "VAL_FILES")
    return [*overrides, *(f"{name}={environment[name]}" for name in named if environment.get(name))]


def run_folder(root: Path, identity: Sequence[str]) -> tuple[Path, bool]:
    """The folder of this run below ``root``: an unfinished one of the same command, else a new one.

    A run whose launcher is still alive is left alone.

    Args:
        root: Folder of all runs of a recipe, stage and profile.
        identity: See :func:`run_identity`.

    Returns:
        The folder, and whether it is an unfinished run that will be resumed.
    """
    existing = sorted(root.glob("run-*")) if root.is_dir() else []
    for folder in reversed(existing):
        with contextlib.suppress(OSError, ValueError):
            record = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
            if record["identity"] == list(identity) and not record["finished"] and not _alive(record["launcher"]):
                clean_leftovers(record)
                write_record(folder, launcher=_process(os.getpid()))
                return folder, True
    number = max((int(folder.name.removeprefix("run-")) for folder in existing if folder.name[4:].isdigit()), default=0)
    folder = root / f"run-{number + 1:03d}"
    folder.mkdir(parents=True)
    write_record(folder, identity=list(identity), finished=False, launcher=_process(os.getpid()))
    return folder, False


def metrics_file(folder: Path) -> Path:
    """Where the next attempt of a run writes its metrics; each attempt has a file of its own."""
    return folder / f"metrics-{len(list(folder.glob('metrics-*.jsonl'))) + 1:03d}.jsonl"


def link_model(folder: Path, checkpoint: Path) -> None:
    """Let ``model`` in a run's folder lead to its last checkpoint in Hugging Face's format."""
    link = folder / "model"
    link.unlink(missing_ok=True)
    link.symlink_to(checkpoint.relative_to(folder))


def write_record(folder: Path, **fields: Any) -> None:
    """Note facts about a run: what it is, whether it has finished, what it took."""
    file = folder / RUN_FILE
    record = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    file.write_text(json.dumps({**record, **fields}), encoding="utf-8")


def clean_leftovers(record: Mapping[str, Any]) -> None:
    """Remove what a killed attempt left: its temporary folder, and shared memory that it made and nobody maps."""
    if record.get("temporary"):
        shutil.rmtree(record["temporary"], ignore_errors=True)
    since = record.get("started_at", time.time())
    remove_segments({segment for segment in shared_segments() if _modified(segment) >= since})


def _process(pid: int) -> list[float]:
    """A process's number and start time, which together name it for good."""
    return [pid, psutil.Process(pid).create_time()]


def _alive(process: Sequence[float]) -> bool:
    """Whether the process of :func:`_process` still runs."""
    with contextlib.suppress(psutil.Error):
        return _process(int(process[0])) == list(process)
    return False


def _modified(path: Path) -> float:
    """When a file was written, in seconds since 1970; 0 for one that is gone."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0
