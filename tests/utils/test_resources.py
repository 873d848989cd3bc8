"""Limits read from control groups as Linux shows them."""

from pathlib import Path

import psutil
import pytest

from agentic_video.utils.resources import cpu_limit, few_threads, memory_free, memory_limit

MACHINE = psutil.virtual_memory().total


def tree(folder: Path, own: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A tree of control groups and the list of a process's own."""
    root, listing = folder / "cgroup", folder / "own"
    root.mkdir()
    listing.write_text(own)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root, listing


def test_without_limits_it_is_the_machine(tmp_path: Path) -> None:
    root, own = tree(tmp_path, "0::/\n", {"memory.max": "max\n", "cpu.max": "max 100000\n"})
    assert memory_limit(root, own) == MACHINE
    assert cpu_limit(root, own) == cpu_limit(tmp_path / "none", tmp_path / "none") >= 1


@pytest.mark.parametrize(
    ("own", "files"),
    [
        ("0::/\n", {"memory.max": "1000000\n"}),
        # a job's step, as Slurm makes them: the limit is the job's
        ("0::/slurm/job_1/step_0\n", {"slurm/job_1/memory.max": "1000000", "slurm/job_1/step_0/memory.max": "max"}),
        ("4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "1000000"}),
        # a container that is shown the host's path
        ("4:memory:/docker/f00\n", {"memory/memory.limit_in_bytes": "1000000"}),
    ],
    ids=["version 2", "above", "version 1", "container"],
)
def test_memory(own: str, files: dict[str, str], tmp_path: Path) -> None:
    assert memory_limit(*tree(tmp_path, own, files)) == 1_000_000


@pytest.mark.parametrize(("text", "limit"), [("1073741824\n", 2**30), ("max\n", 0), ("9223372036854771712\n", 0)])
def test_a_container_s_limit(text: str, limit: int, tmp_path: Path) -> None:
    root, own = tree(tmp_path, "0::/\n", {"memory.max": text})
    assert memory_limit(root, own) == (limit or MACHINE)
    assert memory_limit(tmp_path / "missing", own) == MACHINE


def test_a_limit_above_the_machine_is_none(tmp_path: Path) -> None:
    files = {"memory/memory.limit_in_bytes": str(MACHINE * 1000)}
    assert memory_limit(*tree(tmp_path, "4:memory:/\n", files)) == MACHINE


@pytest.mark.parametrize(
    ("own", "files"),
    [
        ("0::/\n", {"cpu.max": "50000 100000\n"}),
        ("1:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "100000", "cpu/a/cpu.cfs_period_us": "100000"}),
    ],
    ids=["version 2", "version 1"],
)
def test_processors(own: str, files: dict[str, str], tmp_path: Path) -> None:
    assert cpu_limit(*tree(tmp_path, own, files)) == 1


@pytest.mark.parametrize(
    ("own", "folder", "names"),
    [
        ("0::/a\n", "a", ("memory.max", "memory.current", "inactive_file")),
        ("4:memory:/a\n", "memory/a", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")),
    ],
    ids=["version 2", "version 1"],
)
def test_what_is_left_of_a_limit(own: str, folder: str, names: tuple[str, str, str], tmp_path: Path) -> None:
    limit, used, cached = names
    files = {limit: "1000000\n", used: "900000\n", "memory.stat": f"anon 1\n{cached} 50000\nslab 7\n"}
    root, listing = tree(tmp_path, own, {f"{folder}/{name}": text for name, text in files.items()})
    assert memory_free(root, listing) == 1_000_000 - 900_000 + 50_000
    (root / folder / used).write_text("2000000\n")
    assert memory_free(root, listing) == 0
    (root / folder / limit).write_text("max\n" if limit == "memory.max" else str(2**62))
    assert memory_free(root, listing) > 2**30  # the machine's


def test_threads_are_as_many_as_a_control_group_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda number: set(range(64)))
    monkeypatch.setattr("agentic_video.utils.resources.cpu_limit", lambda: 2)
    assert few_threads() == {"OMP_NUM_THREADS": "2"}
    monkeypatch.setattr("agentic_video.utils.resources.cpu_limit", lambda: 64)
    assert few_threads() == {}
