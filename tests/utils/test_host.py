from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from agentic_video.utils.host import (
    count_gpus,
    cpu_limit,
    few_threads,
    free_space,
    memory_free,
    memory_limit,
    mount_of,
    object_store,
)

MACHINE = psutil.virtual_memory().total
GB = 10**9


def control_groups(folder: Path, own: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A tree of control groups and the list of a process's own."""
    root, listing = folder / "cgroup", folder / "own"
    listing.write_text(own)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root, listing


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "1000000\n"}, 1_000_000),
        ("0::/\n", {"memory.max": "1073741824\n"}, 2**30),
        # a job's step, as Slurm makes them: the limit is the job's
        ("0::/slurm/job/step\n", {"slurm/job/memory.max": "1000000", "slurm/job/step/memory.max": "max"}, 1_000_000),
        ("4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "1000000"}, 1_000_000),  # version 1
        # a container that is shown the host's path
        ("4:memory:/docker/f00\n", {"memory/memory.limit_in_bytes": "1000000"}, 1_000_000),
        # no limit below the machine's
        ("0::/\n", {"memory.max": "max\n", "cpu.max": "max 100000\n"}, MACHINE),
        ("0::/\n", {"memory.max": "9223372036854771712\n"}, MACHINE),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": str(MACHINE * 1000)}, MACHINE),
        ("0::/\n", {"other": ""}, MACHINE),
    ],
)
def test_memory_limit(own: str, files: dict[str, str], limit: int, tmp_path: Path) -> None:
    assert memory_limit(*control_groups(tmp_path, own, files)) == limit


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("1:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "100000", "cpu/a/cpu.cfs_period_us": "100000"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, cpu_limit(Path("/none"), Path("/none"))),
    ],
)
def test_cpu_limit(own: str, files: dict[str, str], limit: int, tmp_path: Path) -> None:
    assert cpu_limit(*control_groups(tmp_path, own, files)) == limit >= 1


@pytest.mark.parametrize(
    ("own", "folder", "names"),
    [
        ("0::/a\n", "a", ("memory.max", "memory.current", "inactive_file")),
        ("4:memory:/a\n", "memory/a", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")),
    ],
)
def test_free_memory(own: str, folder: str, names: tuple[str, str, str], tmp_path: Path) -> None:
    limit, used, cached = names
    files = {limit: "1000000\n", used: "900000\n", "memory.stat": f"anon 1\n{cached} 50000\nslab 7\n"}
    root, listing = control_groups(tmp_path, own, {f"{folder}/{name}": text for name, text in files.items()})
    assert memory_free(root, listing) == 1_000_000 - 900_000 + 50_000
    (root / folder / used).write_text("2000000\n")
    assert memory_free(root, listing) == 0
    (root / folder / limit).write_text("max\n" if limit == "memory.max" else str(2**62))
    assert memory_free(root, listing) > 2**30  # the machine's


@pytest.mark.parametrize(("cpus", "variables"), [(2, {"OMP_NUM_THREADS": "2"}), (64, {})])
def test_threads_follow_the_control_group(cpus: int, variables: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda number: set(range(64)))
    monkeypatch.setattr("agentic_video.utils.host.cpu_limit", lambda: cpus)
    assert few_threads() == variables


FOUR = 'for i in 0 1 2 3; do echo "GPU $i: A (UUID: GPU-$i)"; done'


@pytest.mark.parametrize(
    ("script", "visible", "count"),
    [
        ("echo 'GPU 0: A (UUID: x)'; echo '  MIG 1g: y'; echo 'GPU 1: A (UUID: z)'", None, 2),
        ("echo 'No devices were found'; exit 6", None, 0),
        ("", None, 0),
        (FOUR, None, 4),
        (FOUR, "0,1,2,3", 4),
        (FOUR, "2", 1),
        (FOUR, "0,0", 1),
        (FOUR, "3,7", 1),  # CUDA stops at the first that it doesn't have
        (FOUR, "1,-1,2", 1),
        (FOUR, "GPU-a,GPU-b", 2),
        (FOUR, "MIG-a", 1),
        *((FOUR, hidden, 0) for hidden in ("", "-1", "none", "NoDevFiles")),
    ],
)
def test_count_gpus(
    script: str, visible: str | None, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    # a device plugin that hands GPUs over leaves this variable void
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "void")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if script:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    assert count_gpus() == count


MOUNTS = [
    SimpleNamespace(mountpoint=point, fstype=kind, device=device)
    for point, kind, device in (
        ("/", "ext4", "/dev/vda"),
        ("/shared", "nfs4", "server:/export/a"),
        ("/shared/scratch", "lustre", "10.0.0.1@tcp:/scratch"),
        ("/mnt/with space", "fuse.mountpoint-s3", "bucket"),
        ("/twice", "ext4", "/dev/vdb"),
        ("/twice", "tmpfs", "none"),
    )
]


@pytest.mark.parametrize(
    ("path", "point", "kind", "network"),
    [
        ("/home/me", "/", "ext4", False),
        ("/shared/data", "/shared", "nfs4", True),
        ("/shared", "/shared", "nfs4", True),
        ("/shared2", "/", "ext4", False),
        ("/shared/scratch/a/b", "/shared/scratch", "lustre", True),
        ("/mnt/with space/a", "/mnt/with space", "fuse.mountpoint-s3", True),
        ("/twice/a", "/twice", "tmpfs", False),  # mounted over the other one
    ],
)
def test_mount_of(path: str, point: str, kind: str, network: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: MOUNTS)
    found = mount_of(Path(path))
    assert found and (found.point, found.kind, found.network) == (point, kind, network)


def test_mount_of_this_machine() -> None:
    found = mount_of(Path("/proc/self/status"))
    assert found and (found.point, found.kind) == ("/proc", "proc")


@pytest.mark.parametrize(
    ("free", "shared", "size", "on_disk", "limited"),
    [
        (1000 * GB, 1000 * GB, 200 * GB, False, False),  # the most that Ray takes
        (100 * GB, 1000 * GB, 30 * GB, False, False),  # 30 %
        (1000 * GB, 100 * GB, 95 * GB, False, True),  # 95 % of the shared memory
        (1000 * GB, 64 * 10**6, 10 * GB, True, True),  # a container's 64 MB
        (20 * GB, 1 * GB, 6 * GB, True, True),
    ],
)
def test_object_store(
    free: int, shared: int, size: int, on_disk: bool, limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray._private import utils

    found = object_store(free, shared)
    assert (found.size, found.on_disk, found.limited) == (size, on_disk, limited)
    if shared >= GB:  # Ray's own rule
        monkeypatch.setattr(utils, "get_shared_memory_bytes", lambda: shared)
        assert utils.resolve_object_store_memory(free) == size


def test_free_space_of_a_folder_to_be(tmp_path: Path) -> None:
    found = free_space(tmp_path / "not" / "yet", 10)
    assert found and found > 0
