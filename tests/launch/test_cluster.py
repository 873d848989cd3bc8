import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import omegaconf
import pytest
import ray
from pydantic import TypeAdapter

from agentic_video.launch import cluster as probing
from agentic_video.launch.cluster import (
    Cluster,
    ClusterRequest,
    Node,
    check_cluster,
    differences,
    inspect_node,
    report_nodes,
    shortage,
    version_problems,
)
from agentic_video.launch.ray_nodes import NODE_CPUS, ray_nodes
from agentic_video.utils.errors import SetupError
from tests.utils.machines import Machine

GIB = 2**30
TWO = ClusterRequest(2, 8)
WITH_ROLLOUTS = ClusterRequest(1, 8, extra_gpus={"actor_rollout_ref.rollout": 4})
ON_CPUS = ClusterRequest(2, 1, variables={"VERL_PLATFORM": "cpu"})


@pytest.mark.parametrize(
    ("request_", "gpus", "free", "lack"),
    [
        (TWO, [8.0, 8.0], 16.0, ""),
        (TWO, [8.0, 8.0, 0.0], 16.0, ""),  # a head without GPUs
        (TWO, [8.0], 8.0, r"1 node\(s\) with 8 GPU\(s\); the run asks for 2 x 8 .*set NNODES"),
        (TWO, [8.0, 4.0], 12.0, r"2 node\(s\) with 8, 4 GPU\(s\); the run asks for 2 x 8"),
        (TWO, [8.0, 8.0], 9.0, r"only 9 of its 16 GPUs are free"),
        (ON_CPUS, [0.0, 0.0], 0.0, "--num-gpus=1"),
        (ON_CPUS, [1.0], 1.0, "set NNODES"),
        (WITH_ROLLOUTS, [8.0, 4.0], 12.0, ""),
        (WITH_ROLLOUTS, [8.0, 4.0], 11.0, r"only 11 of its 12 GPUs are free"),
        (WITH_ROLLOUTS, [8.0], 8.0, r"8 GPU\(s\) in all; .* 12, 1 x 8 .* and 4 \(actor_rollout_ref\.rollout\.nnodes"),
    ],
)
def test_a_shortage_of_gpus_is_named(request_: ClusterRequest, gpus: list[float], free: float, lack: str) -> None:
    said = shortage(request_, gpus, free)
    assert bool(said) == bool(lack) and re.search(lack, said)


def inspected(folder: Path, *files: Path, content: str = "x") -> dict[str, Any]:
    shared = folder / "token"
    shared.write_text("x")
    request = ClusterRequest(1, 1, tuple(map(str, files)), str(shared), content)
    return inspect_node(["verl", "omegaconf", "no-such-thing"], asdict(request), 0.5)


def test_a_node_reports_itself(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", machine.path(driver="580.65.06"))
    (tmp_path / "rows").write_text("")
    found = inspected(tmp_path, tmp_path / "rows", tmp_path)
    assert found["problems"] == [] and found["driver"] == "580.65.06" and found["python"].endswith(sys.executable)
    assert found["packages"] == {"verl": "0.9.1", "omegaconf": omegaconf.__version__}
    assert found["shared"] == shutil.disk_usage("/dev/shm").total
    assert version_problems(found, {"verl": "0.9.1"}) == []
    for name, version in (("omegaconf", "0.1"), ("no-such-thing", "1")):
        (problem,) = version_problems(found, {name: version})
        assert sys.executable in problem and f"the launcher's has {version}" in problem


def test_a_node_that_lacks_a_file_names_it(tmp_path: Path) -> None:
    (problem,) = inspected(tmp_path, tmp_path / "rows")["problems"]
    assert problem.startswith(f"{tmp_path}/rows: no such file or directory")
    (problem,) = inspected(tmp_path, content="of another machine")["problems"]
    assert problem.startswith(str(tmp_path)) and "OUTPUT_DIR" in problem


def test_a_file_that_never_answers_is_given_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"  # opening it waits for a writer, as a dead disk waits for its server
    os.mkfifo(pipe)
    (problem,) = inspected(tmp_path, pipe, tmp_path / "none")["problems"]
    assert problem.startswith(f"{pipe}: no answer within 0.5 s")
    writer = threading.Thread(target=lambda: pipe.open("wb").close())
    writer.start()
    writer.join()


def test_versions_that_differ_are_named() -> None:
    nodes = [
        Node("10.0.0.1", packages={"verl": "0.9.1", "torch": "2.11.0"}),
        Node("10.0.0.2", packages={"verl": "0.9.1"}),
        Node("10.0.0.3", problems=("no answer",)),
    ]
    assert differences(nodes) == ["torch: 2.11.0 on 10.0.0.1, missing on 10.0.0.2"]


def test_an_address_where_no_cluster_is_costs_one_line() -> None:
    with pytest.raises(SetupError, match="where jobs are submitted"):
        report_nodes("http://head:8265", {})
    with pytest.raises(SetupError, match=r"no Ray cluster answers at 127\.0\.0\.1:1: ") as caught:
        check_cluster("127.0.0.1:1", ClusterRequest(1, 1), {})
    assert "\n" not in str(caught.value)


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_two_nodes_on_this_machine(tmp_path: Path, nodes_folder: Path) -> None:
    rows = tmp_path / "rows"
    rows.write_text("")
    environment = {**os.environ, "WANTED": "not inherited"}
    with ray_nodes(2, nodes_folder, environment) as joining:
        address, environment = joining["RAY_ADDRESS"], {**environment, **joining}
        cluster = check_cluster(address, ClusterRequest(2, 1, (str(rows),)), environment)
        assert [(node.gpus, node.problems) for node in cluster.nodes] == [(1.0, ()), (1.0, ())]
        for node in report_nodes(address, environment):
            assert (node.cpus, node.gpus, node.packages["ray"]) == (NODE_CPUS, 1.0, ray.__version__)
            assert sys.executable in node.python and node.store > 0 and not node.problems
        with pytest.raises(SetupError, match=r"^node [\d.]+: /no/such: no such file .* \(and 1 more: node "):
            check_cluster(address, ClusterRequest(2, 1, ("/no/such",)), environment)
        # too few nodes are waited for
        program = "import sys; from agentic_video.launch import cluster; cluster.JOIN_SECONDS = 0.1; cluster.main()"
        said = subprocess.run(
            [sys.executable, "-c", program, address],
            input=TypeAdapter(ClusterRequest).dump_json(ClusterRequest(3, 8)).decode(),
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        result = TypeAdapter(Cluster).validate_json(said.partition(probing.RESULT)[2].splitlines()[0])
        assert "it has 2 node(s) with 1, 1 GPU(s); the run asks for 3 x 8" in result.problem
        with pytest.raises(SetupError, match=r"^no Ray cluster can be joined at .*RAY_AUTH_MODE=token"):
            check_cluster(address, ClusterRequest(1, 1), {**environment, "RAY_AUTH_MODE": "disabled"})
