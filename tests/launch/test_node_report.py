import os
import shutil
import sys
from pathlib import Path

import pytest
import ray

from agentic_video.launch.node_report import NodeReport, differences, inspect, report_nodes
from agentic_video.launch.ray_nodes import NODE_CPUS, ray_nodes
from agentic_video.utils.errors import SetupError
from tests.utils.machines import Machine

GIB = 2**30


def test_what_a_node_says_of_itself(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", machine.path(driver="580.65.06"))
    found = inspect(["verl", "no-such-thing"])
    assert found["packages"] == {"verl": "0.9.1"} and found["driver"] == "580.65.06"
    assert found["python"].endswith(sys.executable)
    assert found["shared"] == shutil.disk_usage("/dev/shm").total


def test_a_node_in_a_line() -> None:
    node = NodeReport(
        "10.0.0.1",
        "a",
        64.0,
        8.0,
        700.0 * GIB,
        200.0 * GIB,
        256 * GIB,
        "580.65.06",
        "Python 3.12.3 at /p",
        {"verl": "1"},
    )
    assert node.line() == (
        "10.0.0.1 (a): 8 GPU(s) (driver 580.65.06), 64 CPUs, 700.0 GiB memory, object store 200.0 GiB in 256.0 GiB of "
        "shared memory; Python 3.12.3 at /p; verl 1"
    )
    assert NodeReport("10.0.0.2", problem="no answer within 90 s").line() == "10.0.0.2: no answer within 90 s"


def test_versions_that_differ_are_named() -> None:
    nodes = [
        NodeReport("10.0.0.1", packages={"verl": "0.9.1", "torch": "2.11.0"}),
        NodeReport("10.0.0.2", packages={"verl": "0.9.1"}),
        NodeReport("10.0.0.3", problem="no answer"),
    ]
    assert differences(nodes) == ["torch: 2.11.0 on 10.0.0.1, missing on 10.0.0.2"]


def test_a_submission_address_is_refused() -> None:
    with pytest.raises(SetupError, match="where jobs are submitted"):
        report_nodes("http://head:8265", {})


@pytest.mark.ray
def test_every_node_of_a_cluster(nodes_folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with ray_nodes(2, nodes_folder, environment) as joining:
        nodes = report_nodes(joining["RAY_ADDRESS"], {**environment, **joining})
    assert [node.problem for node in nodes] == ["", ""]
    for node in nodes:
        assert (node.cpus, node.gpus, node.packages["ray"]) == (NODE_CPUS, 1.0, ray.__version__)
        assert sys.executable in node.python and node.store > 0


def test_no_cluster_is_one_line() -> None:
    with pytest.raises(SetupError, match=r"no Ray cluster answers at 127\.0\.0\.1:9: .*refused") as caught:
        report_nodes("127.0.0.1:9", os.environ)
    assert "\n" not in str(caught.value)
