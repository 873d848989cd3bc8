"""What the machine, or the container on it, leaves a job: memory, Ray's object store, file systems."""

import re
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

NETWORK = {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p", "virtiofs", "wekafs", "glusterfs"}
"""File systems that several machines usually share."""
STORE_SHARE = 0.3
STORE_MOST = 200 * 10**9
STORE_ON_DISK = 10**10
"""How Ray sizes its object store: a share of the free memory, at most so many bytes, and at most 95 % of the shared
memory, but for so many bytes, which it would rather put on a disk (ray 2.60: ``_private/utils.py``,
``resolve_object_store_memory``; ``_private/services.py``, ``determine_plasma_store_config``)."""


@dataclass(frozen=True)
class Mount:
    """A mounted file system.

    Attributes:
        point: Folder that it is mounted on.
        kind: Its type, e.g. ``ext4`` or ``nfs4``.
        source: What is mounted, e.g. ``server:/export``.
    """

    point: str
    kind: str
    source: str

    @property
    def network(self) -> bool:
        """Whether other machines can have it, too. Of a FUSE file system one can't know; most of them can."""
        return self.kind in NETWORK or self.kind.startswith("fuse")


@dataclass(frozen=True)
class ObjectStore:
    """What Ray would take for its object store when it starts on this machine.

    Attributes:
        size: Bytes.
        on_disk: Whether it would be outside of the shared memory, since that is too small.
        limited: Whether it would be larger if the shared memory were.
    """

    size: int
    on_disk: bool
    limited: bool


def object_store(free: int, shared: int) -> ObjectStore:
    """What Ray would take, by its own rule.

    Args:
        free: Bytes of free memory.
        shared: Bytes that are free in ``/dev/shm``.
    """
    asked = min(int(free * STORE_SHARE), STORE_MOST)
    size = min(asked, max(STORE_ON_DISK, int(shared * 0.95)))
    return ObjectStore(size, on_disk=size > shared, limited=asked > shared * 0.95)


def mount_of(path: Path, table: Path = Path("/proc/self/mountinfo")) -> Mount | None:
    """The file system that a path is on, without asking that file system; None where the table can't be read.

    Args:
        path: Absolute.
        table: The mounts of this process (proc_pid_mountinfo(5)).
    """
    try:
        lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    found = None
    for line in lines:
        place, _, what = line.partition(" - ")
        point, (kind, source) = _plain(place.split()[4]), what.split()[:2]
        # what was mounted last on a folder is what one sees there
        if path.is_relative_to(point) and (found is None or len(point) >= len(found.point)):
            found = Mount(point, kind, _plain(source))
    return found


def _plain(text: str) -> str:
    """A path of the table: spaces and the like are written as octal numbers there."""
    return re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), text)


def free_space(folder: Path, seconds: float) -> int | None:
    """Bytes that are free in a folder, or where it will be made; None where the file system doesn't answer.

    Args:
        folder: Absolute.
        seconds: How long it may take: a dead network disk never answers.

    Raises:
        OSError: It refuses.
    """
    return _within(seconds, lambda: shutil.disk_usage(_nearest(folder)).free)


def can_write(folder: Path, seconds: float) -> bool | None:
    """Make a file in a folder, or where it will be made, and remove it; None where the file system doesn't answer.

    Args:
        folder: Absolute.
        seconds: See :func:`free_space`.

    Raises:
        OSError: None can.
    """

    def write() -> bool:
        # asked by doing it: what a file system says of permissions may not hold for this user, as for root on NFS
        with tempfile.TemporaryFile(dir=_nearest(folder)):
            return True

    return _within(seconds, write)


def _nearest(folder: Path) -> Path:
    """The folder, or its nearest parent that is there."""
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _within(seconds: float, ask: Callable[[], T]) -> T | None:
    """What a file system answers; None where it doesn't in time."""
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
