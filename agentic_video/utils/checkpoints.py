"""Checkpoints from which a run can resume, in the folders that verl writes."""

import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TRACKER = "latest_checkpointed_iteration.txt"
"""File with the step of the newest checkpoint; verl writes it last."""
STEP = "global_step_"
SHARD = re.compile(r"(model|optim|extra_state)_world_size_(\d+)_rank_(\d+)\.pt")
"""Files of each rank."""
LOADER = "data*.pt"
"""State of the data loader; written after the shards."""


class DamagedCheckpoint(Exception):
    """All checkpoints of a run are damaged; the message lists the problem of each."""


def newest_whole(folder: Path) -> tuple[Path | None, str]:
    """Find the checkpoint to resume from: the tracker's, or the newest whole one before it.

    A full disk, or a loss of power, may have left the tracker or the files empty or cut short.

    Returns:
        The step's folder, None where nothing was written yet; and the problems of newer ones.

    Raises:
        DamagedCheckpoint: There are checkpoints, and all are damaged.
    """
    tracker = folder / TRACKER
    if not tracker.is_file():
        return None, ""
    problems = []
    named = tracker.read_text(encoding="utf-8", errors="replace").strip()
    latest = int(named) if re.fullmatch(r"\d{1,18}", named, re.ASCII) else None
    if latest is None:
        problems.append(f"{tracker} names no step")
    steps = sorted(_steps(folder, latest), reverse=True)
    if not steps:
        return None, ""
    if latest is not None and steps[0][0] != latest:
        problems.append(f"{folder / STEP}{latest} is missing")
    for number, step in steps:
        problem = damage(step)
        if not problem and latest is None and not any(step.glob(LOADER)):
            problem = "data.pt is missing"  # it was being written
        if not problem:
            return step, "; ".join(problems)
        if number == latest or any(step.rglob("*_rank_*.pt")):  # of old ones verl leaves the loader's state
            problems.append(f"{step}: {problem}")
    raise DamagedCheckpoint("; ".join(problems) or f"{folder} holds no checkpoint with weights")


def _step_of(shards: Path) -> Path:
    """A step's folder by that of its shards: the same, or the one above ``actor``."""
    return shards if shards.name.startswith(STEP) else shards.parent


def same_run(shards: Path, others: Path) -> bool:
    """Return True for shards of two checkpoints of one run."""
    return _step_of(shards).parent.resolve() == _step_of(others).parent.resolve()


def saved_before(shards: Path) -> list[Path]:
    """Folders of the shards of a checkpoint and of the run's earlier ones, the oldest first."""
    step = _step_of(shards)
    number = step.name.removeprefix(STEP)
    if not step.name.startswith(STEP) or not number.isdecimal():
        return []
    found = sorted(_steps(step.parent, int(number)))
    folders = (folder / shards.relative_to(step) for _, folder in found)
    return [folder for folder in folders if any(folder.glob("*_rank_*.pt"))]


def damage(step: Path) -> str:
    """Describe a damaged checkpoint; empty for a whole one."""
    ranks: dict[tuple[str, int], set[int]] = defaultdict(set)
    for file in sorted(step.rglob("*.pt")):
        if found := SHARD.fullmatch(file.name):
            ranks[found[1], int(found[2])].add(int(found[3]))
        elif not file.match(LOADER):
            continue
        if not zipfile.is_zipfile(file):  # its table is its end
            return f"{file.relative_to(step)} is cut short"
    if not any(kind == "model" for kind, _ in ranks):
        return "it has no weights"
    for (kind, size), had in sorted(ranks.items()):
        if missing := set(range(size)) - had:
            return f"{kind}_world_size_{size}_rank_{min(missing)}.pt is missing"
    return ""


def _steps(folder: Path, latest: int | None) -> Iterator[tuple[int, Path]]:
    """Yield the steps' numbers and folders, up to the latest where that is known."""
    for step in folder.glob(f"{STEP}*"):
        number = step.name.removeprefix(STEP)
        if number.isdecimal() and step.is_dir() and (latest is None or int(number) <= latest):
            yield int(number), step
