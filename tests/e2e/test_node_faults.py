"""What the launcher says of nodes that can't do their part, on two hosts with file systems of their own."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from agentic_video.launch.cluster import RESULT, Cluster, ClusterRequest
from tests.e2e.hosts import HOSTS, REPOSITORY, needs, two_hosts

RAY = str(Path(sys.executable).with_name("ray"))
ADDRESS = "10.83.0.1:6379"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200), needs()]


def on(folder: Path, host: str, *command: str) -> list[str]:
    """A command on one of the hosts, with nothing of this environment."""
    clean = ["env", "-i", f"PATH={os.environ['PATH']}", f"HOME={folder}", f"PYTHONPATH={REPOSITORY}"]
    return [*HOSTS, "on", str(folder), host, *clean, "RAY_AUTH_MODE=disabled", *command]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that two hosts with Ray share; each has a folder of videos and one of rows."""
    folder = tmp_path_factory.mktemp("shared")
    for name in ("videos", "rows"):
        (folder / name).mkdir()
        (folder / name / "one").write_text("here")
    nodes = []
    places = {"n1": ["--head", "--port=6379", "--include-dashboard=false"], "n2": [f"--address={ADDRESS}"]}
    with two_hosts(folder, "10.83.0"):
        for host, place in places.items():
            log = folder / f"ray-{host}.log"
            sizes = ["--num-gpus=1", "--num-cpus=4", "--object-store-memory=100000000", "--disable-usage-stats"]
            with log.open("wb") as file:
                command = on(folder, host, RAY, "start", *place, *sizes, "--block")
                nodes.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT))
            end = time.monotonic() + 300
            while "Ray runtime started" not in log.read_text(errors="replace"):
                assert nodes[-1].poll() is None and time.monotonic() < end, log.read_text(errors="replace")[-2000:]
                time.sleep(0.5)
        yield folder
    for node in nodes:
        node.wait()


def looked(folder: Path, *files: Path) -> Cluster:
    """What the launcher on the first host finds."""
    shared = folder / "token"
    shared.write_text("content")
    request = ClusterRequest(2, 1, tuple(map(str, files)), str(shared), "content")
    done = subprocess.run(
        on(folder, "n1", sys.executable, "-m", "agentic_video.launch.cluster", ADDRESS),
        input=json.dumps(asdict(request)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert RESULT in done.stdout, done.stderr[-2000:]
    return TypeAdapter(Cluster).validate_json(done.stdout.partition(RESULT)[2].splitlines()[0])


def problems(cluster: Cluster) -> dict[str, list[str]]:
    assert cluster.problem == ""
    return {node.address: list(node.problems) for node in cluster.nodes}


def test_nodes_that_see_all(cluster: Path) -> None:
    assert problems(looked(cluster, cluster / "videos" / "one")) == {"10.83.0.1": [], "10.83.0.2": []}


def test_a_folder_of_videos_that_one_node_can_t_see(cluster: Path) -> None:
    subprocess.run(on(cluster, "n2", "mount", "-t", "tmpfs", "none", str(cluster / "videos")), check=True)
    found = problems(looked(cluster, cluster / "videos" / "one", cluster / "rows" / "one"))
    subprocess.run(on(cluster, "n2", "umount", str(cluster / "videos")), check=True)
    assert found["10.83.0.1"] == [] and len(found["10.83.0.2"]) == 1
    assert found["10.83.0.2"][0].startswith(f"{cluster}/videos/one: ")


@pytest.mark.skipif(shutil.which("bindfs") is None, reason="needs Debian's bindfs")
def test_a_file_system_that_hangs_on_one_node(cluster: Path) -> None:
    rows = str(cluster / "rows")
    subprocess.run(on(cluster, "n2", "bindfs", "--no-allow-other", rows, rows), check=True)
    subprocess.run(on(cluster, "n2", "pkill", "-STOP", "bindfs"), check=True)
    found = problems(looked(cluster, cluster / "rows" / "one"))
    subprocess.run(on(cluster, "n2", "pkill", "-CONT", "bindfs"), check=True)
    assert found["10.83.0.1"] == []
    assert found["10.83.0.2"][0].startswith(f"{rows}/one: no answer within 20 s")
