"""How much memory and how many processors this process may use: the machine's, or what its container or job allows."""

import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path

import psutil

CGROUPS = Path("/sys/fs/cgroup")
"""Where Linux shows control groups: one tree (version 2), or one below each controller's name (version 1)."""
OWN = Path("/proc/self/cgroup")
"""Which control groups this process is in: lines of ``number:controllers:path``."""


MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Of a control group, in version 2 and 1: files of its limit and its use, and what of that in ``memory.stat`` is files'
content that nothing reads."""


def memory_limit(root: Path = CGROUPS, own: Path = OWN) -> int:
    """Bytes of memory that this process may use: the least of the machine's and its control groups'.

    Args:
        root: See ``CGROUPS``.
        own: See ``OWN``.
    """
    limits = [int(psutil.virtual_memory().total)]
    for folder in _groups("memory", root, own):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limits += [int(word) for word in _words(folder / name) if word.isdigit() and int(word)]
    return min(limits)


def memory_free(root: Path = CGROUPS, own: Path = OWN) -> int:
    """Bytes of memory that this process can still get: the least that the machine and its control groups have left.

    Args:
        root: See ``CGROUPS``.
        own: See ``OWN``.
    """
    left = [int(psutil.virtual_memory().available)]
    for folder in _groups("memory", root, own):
        for most, used, cached in MEMORY_FILES:
            limit, taken = _words(folder / most), _words(folder / used)
            if limit and taken and limit[0].isdigit() and int(limit[0]):
                statistics = _words(folder / "memory.stat")
                pairs = dict(zip(statistics[::2], statistics[1::2], strict=False))
                # the kernel gives these pages back where memory is short
                left.append(int(limit[0]) - int(taken[0]) + int(pairs.get(cached, 0)))
    return max(0, min(left))


def cpu_limit(root: Path = CGROUPS, own: Path = OWN) -> int:
    """Processors that this process may use at a time, at least 1: by its affinity and its control groups' quotas.

    Args:
        root: See ``CGROUPS``.
        own: See ``OWN``.
    """
    limits = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for folder in _groups("cpu", root, own):
        version_1 = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        for words in (_words(folder / "cpu.max"), version_1):
            if len(words) == 2 and all(word.isdigit() and int(word) for word in words):
                limits.append(ceil(int(words[0]) / int(words[1])))
    return max(1, min(limits))


def few_threads() -> dict[str, str]:
    """The variable that keeps libraries from starting a thread for each processor of the machine, where a control group
    allows fewer at a time; none elsewhere."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"OMP_NUM_THREADS": str(cpu_limit())} if cpu_limit() < affinity else {}


def _groups(controller: str, root: Path, own: Path) -> Iterator[Path]:
    """The folders of this process's control groups and of those above them, which limit it too."""
    for line in own.read_text(encoding="utf-8").splitlines() if own.is_file() else ():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            top = root / controller
        elif number == "0":
            top = root
        else:
            continue
        folder = top / path.strip("/")
        # In a container the path may be the host's; the container's own group is then at the top.
        yield from (top, *(group for group in (folder, *folder.parents) if top in group.parents))


def _words(path: Path) -> list[str]:
    """A file's words; none where it can't be read."""
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return []
