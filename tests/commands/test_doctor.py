from pathlib import Path

import pytest

from agentic_video.commands import doctor
from agentic_video.launch.cluster import Node
from agentic_video.utils.errors import SetupError
from agentic_video.utils.host import Mount
from tests.utils.machines import Machine


def test_what_is_missing_comes_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: None if name in ("vllm", "av") else real(name))
    assert doctor.run(doctor.DoctorArguments()) == 1
    lines = capsys.readouterr().out.splitlines()
    for name in ("vllm", "av"):
        place = next(i for i, line in enumerate(lines) if line.startswith(f"!! {name} "))
        assert "missing" in lines[place]
        assert "agentic-video install" in lines[place + 1]


def test_another_verl_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda name: "0.8.0")
    found = {check.name: check for check in doctor.health_checks()}
    assert "0.9.1" in found["verl"].remedy


@pytest.mark.parametrize(
    ("name", "version", "remedy", "note"),
    [
        ("torch", "2.8.0", "torch ==2.11.0 is needed: agentic-video install cpu", ""),
        ("torch", "2.11.0+cu130", "", ""),
        ("vllm", "0.11.0", "vllm ==0.24.0 is needed: agentic-video install cpu", ""),
        ("vllm", "0.24.0+cpu", "", ""),
        ("ray", "2.10.0", "ray >=2.41,>=2.41.0 is needed: agentic-video install cpu", ""),
        ("ray", "2.55.0", "", "tested with 2.60.0"),
        ("tensordict", "0.9.0", "tensordict !=0.9.0,<=0.10.0,>=0.8.0 is needed: agentic-video install cpu", ""),
        ("av", "17.0.0", "", "tested with 18.1.0"),
        ("ray", "of-my-own", "", "tested with 2.60.0"),
    ],
)
def test_versions_that_are_needed_and_that_were_tested(
    name: str, version: str, remedy: str, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda asked: version if asked == name else real(asked))
    found = {check.name: check for check in doctor.health_checks()}[name]
    assert found.value == version and found.remedy.startswith(remedy) and bool(found.remedy) == bool(remedy)
    assert found.note == note


def test_the_environment_of_the_lock_has_all_versions() -> None:
    for check in doctor.health_checks():
        if doctor.installed(check.name):
            assert (check.remedy, check.note) == ("", "")


def test_nothing_is_demanded_where_nothing_reports_what(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "DEMANDING", (("no-such-distribution", ""),))
    monkeypatch.setattr(doctor, "lists_folder", lambda: tmp_path)
    assert doctor.package("pytest", "cpu", "install") == doctor.HealthCheck("pytest", pytest.__version__)


def found_here() -> dict[str, doctor.HealthCheck]:
    return {check.name: check for check in doctor.health_checks()}


def test_driver_and_compiler_of_a_machine_with_gpus(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setenv("PATH", machine.path(driver="580.65.06", nvcc="13.0"))
    found = found_here()
    assert found["GPUs"].value == "2"
    assert (found["driver"].value, found["driver"].remedy) == ("580.65.06", "")
    assert found["nvcc"].value == f"13.0 ({machine.folder}/nvcc)" and not found["nvcc"].remedy
    assert "flash-attn" in found

    monkeypatch.setenv("PATH", machine.path(driver="550.54.15", nvcc="12.4"))
    found = found_here()
    assert "580" in found["driver"].remedy and "CUDA 12.4" in found["nvcc"].remedy


@pytest.mark.parametrize(("free", "enough"), [(8.9, False), (9.0, True), (9.5, True)])
def test_the_laptop_job_needs_what_the_quick_start_says(
    free: float, enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "quickstart.md").read_text(encoding="utf-8")
    assert f"{doctor.LAPTOP_MEMORY} GiB of free memory" in page
    monkeypatch.setattr(doctor, "memory_free", lambda: int(free * doctor.GIB))
    memory = found_here()["memory"]
    assert bool(memory.remedy) != enough and ("9 GiB" in memory.remedy) != enough


def test_a_small_shared_memory_puts_the_object_store_on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "free_space", lambda folder, seconds: 64 << 20)
    store = found_here()["object store"]
    assert "on a disk" in store.value and "--shm-size" in store.remedy


def test_a_disk_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "free_space", lambda folder, seconds: None)
    assert "alive" in found_here()["disk"].remedy and "alive" in found_here()["cache"].remedy


def test_the_folders_that_are_written_to_are_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "runs" / "new"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked: list[Path] = []

    def free(folder: Path, seconds: float) -> int:
        asked.append(folder)
        return 3 * doctor.GIB

    monkeypatch.setattr(doctor, "free_space", free)
    found = found_here()
    assert asked[-2] == tmp_path / "runs" / "new" and asked[-1].is_relative_to(tmp_path / "cache")
    assert found["disk"].value.startswith("3.0 GiB free for ") and "set OUTPUT_DIR" in found["disk"].remedy
    assert not found["cache"].remedy
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "file" / "runs"))
    monkeypatch.setenv("XDG_CACHE_HOME", "/sys/cache")  # where root can't write either
    found = found_here()
    assert "can't be written: not a directory" in found["disk"].value and "OUTPUT_DIR" in found["disk"].remedy
    assert "can't be written: " in found["cache"].value and "XDG_CACHE_HOME" in found["cache"].remedy


def test_a_folder_that_a_job_does_not_make_must_be_there(tmp_path: Path) -> None:
    missing, there = tmp_path / "shm", doctor._room("x", tmp_path, 0, "larger", write=False)
    assert there.value.endswith(f"GiB free in {tmp_path}") and not there.remedy
    assert doctor._room("x", missing, 0, "larger", write=False).value == f"{missing} doesn't exist"
    assert doctor._room("x", missing, 0, "larger").value.endswith(f"GiB free for {missing}")


@pytest.mark.parametrize(
    ("kind", "nodes", "says"),
    [("ext4", "1", ""), ("ext4", "2", "set OUTPUT_DIR"), ("nfs4", "2", ""), ("lustre", "1", ""), ("fuse.x", "2", "")],
)
def test_what_a_file_system_means_for_several_nodes(
    kind: str, nodes: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNODES", nodes)
    monkeypatch.setattr(doctor, "mount_of", lambda path: Mount("/", kind, "x"))
    found = found_here()["outputs"]
    assert kind in found.value and says in found.remedy and bool(found.remedy) == bool(says)
    assert ("network" in found.value) == (kind != "ext4")


def test_nodes_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        Node("10.0.0.1", "a", packages={"verl": "0.9.1"}),
        Node("10.0.0.2", "b", packages={"verl": "0.9.0"}),
        Node("10.0.0.3", problems=("no answer within 90 s",)),
    ]
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setattr(doctor, "report_nodes", lambda address, environment: nodes)
    monkeypatch.setattr(doctor, "mount_of", lambda path: Mount("/", "ext4", "/dev/vda"))
    said = [check for check in doctor.health_checks() if check.name in ("node", "packages", "outputs")]
    assert [bool(check.remedy) for check in said] == [True, False, False, True, True]
    assert "0.9.1 on 10.0.0.1, 0.9.0 on 10.0.0.2" in said[-1].value


def test_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(address: str, environment: object) -> list[Node]:
        raise SetupError(f"no Ray cluster can be joined at {address}")

    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setattr(doctor, "report_nodes", fails)
    assert "10.0.0.1:6379" in found_here()["cluster"].remedy
