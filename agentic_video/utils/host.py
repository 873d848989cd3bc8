"""Probes of this machine, or of the container or job on it: processors, memory, GPUs, file systems, Ray's store."""

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

CGROUPS = Path("/sys/fs/cgroup")
"""Control groups: one tree (version 2), or one below each controller's name (version 1)."""
OWN = Path("/proc/self/cgroup")
"""Control groups of this process: lines of ``number:controllers:path``."""
MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""A control group's files of limit and use, in version 2 and 1, and the key in ``memory.stat`` of idle file content."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable that lists the GPUs which programs may use."""
NETWORK = {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p", "virtiofs", "wekafs", "glusterfs"}
"""File systems that several machines usually share."""
STORE_SHARE = 0.3
STORE_MOST = 200 * 10**9
STORE_ON_DISK = 10**10
"""Ray's rule for its object store: a share of the free memory, at most so many bytes, and at most 95 % of the shared
memory, but for so many bytes, which it would rather put on a disk (ray 2.60: ``_private/utils.py``,
``resolve_object_store_memory``; ``_private/services.py``, ``determine_plasma_store_config``)."""


def cpu_limit(root: Path = CGROUPS, own: Path = OWN) -> int:
    """Processors that this process may use at a time, at least 1: by its affinity and its control groups' quotas."""
    limits = [_affinity()]
    for folder in _groups("cpu", root, own):
        version_1 = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        for words in (_words(folder / "cpu.max"), version_1):
            if len(words) == 2 and all(word.isdigit() and int(word) for word in words):
                limits.append(ceil(int(words[0]) / int(words[1])))
    return max(1, min(limits))


def few_threads() -> dict[str, str]:
    """Variable that keeps libraries from starting a thread for each processor, where a control group allows fewer."""
    return {"OMP_NUM_THREADS": str(cpu_limit())} if cpu_limit() < _affinity() else {}


def _affinity() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_limit(root: Path = CGROUPS, own: Path = OWN) -> int:
    """Bytes of memory that this process may use: the least of the machine's and its control groups'."""
    import psutil

    limits = [int(psutil.virtual_memory().total)]
    for folder in _groups("memory", root, own):
        for name, _, _ in MEMORY_FILES:
            limits += [int(word) for word in _words(folder / name) if word.isdigit() and int(word)]
    return min(limits)


def memory_free(root: Path = CGROUPS, own: Path = OWN) -> int:
    """Bytes of memory that this process can still get: the least that the machine and its control groups have left."""
    import psutil

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


def _groups(controller: str, root: Path, own: Path) -> Iterator[Path]:
    """Folders of this process's control groups and of those above them, which limit it too."""
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
    """Words of a file; none where it can't be read."""
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return []


def count_gpus() -> int:
    """Count the NVIDIA GPUs that the driver reports and ``CUDA_VISIBLE_DEVICES`` doesn't hide."""
    entries = visible_entries(os.environ)
    if entries == []:
        return 0
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    if entries is None:
        return found
    # CUDA reads the list up to the first number that it has no GPU for
    known = [entry for entry in entries if not entry.isdecimal() or int(entry) < found]
    return min(len(known), found)


def visible_entries(environment: Mapping[str, str]) -> list[str] | None:
    """GPUs that ``CUDA_VISIBLE_DEVICES`` lists; None where it isn't set, and so hides none.

    CUDA reads numbers and names of GPUs up to the first entry that is neither, such as -1 or Slurm's ``NoDevFiles``.
    """
    if (listed := environment.get(VISIBLE)) is None:
        return None
    found: list[str] = []
    for entry in (part.strip() for part in listed.split(",")):
        if not re.fullmatch(r"\d+|(GPU|MIG)-\S+", entry) or entry in found:
            break
        found.append(entry)
    return found


@dataclass(frozen=True)
class ObjectStore:
    """Object store that Ray would make on this machine.

    Attributes:
        size: Bytes.
        on_disk: Whether it would be outside of the shared memory, since that is too small.
        limited: Whether it would be larger if the shared memory were.
    """

    size: int
    on_disk: bool
    limited: bool


def object_store(free: int, shared: int) -> ObjectStore:
    """Size Ray's object store by its own rule, from the free bytes of memory and of ``/dev/shm``."""
    asked = min(int(free * STORE_SHARE), STORE_MOST)
    size = min(asked, max(STORE_ON_DISK, int(shared * 0.95)))
    return ObjectStore(size, on_disk=size > shared, limited=asked > shared * 0.95)


@dataclass(frozen=True)
class Mount:
    """A mounted file system.

    Attributes:
        point: Folder that it is mounted on.
        kind: Its type, e.g. ``ext4`` or ``nfs4``.
        source: Its device or export, e.g. ``server:/export``.
    """

    point: str
    kind: str
    source: str

    @property
    def network(self) -> bool:
        """Whether other machines can mount it too. Of a FUSE file system one can't know; most of them can."""
        return self.kind in NETWORK or self.kind.startswith("fuse")


def mount_of(path: Path) -> Mount | None:
    """Find the file system of an absolute path without asking that file system; None where the mounts aren't known."""
    import psutil

    try:
        mounts = [mount for mount in psutil.disk_partitions(all=True) if path.is_relative_to(mount.mountpoint)]
    except OSError:
        return None
    # the last mount on a folder hides the earlier ones
    found = max(reversed(mounts), key=lambda mount: len(mount.mountpoint), default=None)
    return found and Mount(found.mountpoint, found.fstype, found.device)


def free_space(folder: Path, seconds: float) -> int | None:
    """Free bytes in an absolute folder, or where it will be made; None where the file system doesn't answer in time.

    Raises:
        OSError: It refuses.
    """
    return within(seconds, lambda: shutil.disk_usage(_nearest(folder)).free)


def can_write(folder: Path, seconds: float) -> bool | None:
    """Make and remove a file in a folder, or where it will be made; None where the file system doesn't answer in time.

    Raises:
        OSError: None can be made there.
    """

    def write() -> bool:
        # asked by doing it: what a file system says of permissions may not hold for this user, as for root on NFS
        with tempfile.TemporaryFile(dir=_nearest(folder)):
            return True

    return within(seconds, write)


def _nearest(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def within(seconds: float, ask: Callable[[], T]) -> T | None:
    """Call a function on a thread; None where it takes longer, as a dead network disk never answers."""
    answers: list[T | OSError] = []

    def run() -> None:
        try:
            answers.append(ask())
        except OSError as error:
            answers.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    answer = answers[0] if answers else None
    if isinstance(answer, OSError):
        raise answer
    return answer
