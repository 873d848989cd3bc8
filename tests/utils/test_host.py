from pathlib import Path

import pytest

from agentic_video.utils.host import Mount, free_space, mount_of, object_store

TABLE = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:45 / /shared rw,relatime shared:2 - nfs4 server:/export/a rw,vers=4.2
31 30 0:46 / /shared/scratch rw,relatime - lustre 10.0.0.1@tcp:/scratch rw
32 22 0:47 / /mnt/with\\040space rw - fuse.mountpoint-s3 bucket rw
33 22 0:48 / /twice rw - ext4 /dev/vdb rw
34 33 0:49 / /twice rw - tmpfs none rw
"""


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
def test_the_file_system_of_a_path(path: str, point: str, kind: str, network: bool, tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    found = mount_of(Path(path), table)
    assert found and (found.point, found.kind, found.network) == (point, kind, network)


def test_this_machine_s_own_table() -> None:
    found = mount_of(Path("/proc/self/status"))
    assert found and (found.point, found.kind) == ("/proc", "proc")


def test_no_table_is_no_answer(tmp_path: Path) -> None:
    assert mount_of(Path("/"), tmp_path / "missing") is None


GB = 10**9


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
def test_what_ray_takes(free: int, shared: int, size: int, on_disk: bool, limited: bool) -> None:
    found = object_store(free, shared)
    assert (found.size, found.on_disk, found.limited) == (size, on_disk, limited)


def test_rays_own_rule_is_the_one_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import utils

    for free, shared in ((1000 * GB, 1000 * GB), (100 * GB, 1000 * GB), (1000 * GB, 100 * GB), (20 * GB, 1 * GB)):
        monkeypatch.setattr(utils, "get_shared_memory_bytes", lambda shared=shared: shared)
        assert utils.resolve_object_store_memory(free) == object_store(free, shared).size


def test_free_space_is_that_of_the_folder_to_be(tmp_path: Path) -> None:
    found = free_space(tmp_path / "not" / "yet", 10)
    assert found and found > 0


def test_a_mount_of_another_type_is_the_machine_s_own() -> None:
    assert not Mount("/data", "xfs", "/dev/nvme0n1").network
