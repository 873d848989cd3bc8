"""What each node of a Ray cluster has, for ``agentic-video doctor``.

``python -m agentic_video.launch.node_report ADDRESS`` prints a list of :class:`NodeReport` as json. It is a process of
its own because it joins the cluster.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agentic_video.launch.nodes import RESULT, ask_each, result_of
from agentic_video.utils.environment import DISTRIBUTION
from agentic_video.utils.errors import SetupError
from agentic_video.utils.ray_cluster import auth_mode, unanswered
from agentic_video.utils.units import GIB

SECONDS = 90.0
"""How long all nodes together may take, the start of a process on each included."""
PACKAGES = (DISTRIBUTION, "verl", "torch", "vllm", "transformers", "ray", "flash-attn")


@dataclass(frozen=True)
class NodeReport:
    """One machine of a cluster.

    Attributes:
        address: Its IP address.
        name: Its host name.
        cpus: CPUs that Ray counts there.
        gpus: GPUs that Ray counts there.
        memory: Bytes of memory that Ray leaves to tasks there.
        store: Bytes of its object store.
        shared: Bytes of its shared memory.
        driver: Version of its NVIDIA driver; empty for none.
        python: Its Python: path and version.
        packages: Versions of installed packages.
        problem: Why it couldn't be asked; empty where it could.
    """

    address: str
    name: str = ""
    cpus: float = 0.0
    gpus: float = 0.0
    memory: float = 0.0
    store: float = 0.0
    shared: int = 0
    driver: str = ""
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    def line(self) -> str:
        """What there is, in a line."""
        if self.problem:
            return f"{self.address}: {self.problem}"
        gpus = f"{self.gpus:g} GPU(s)" + (f" (driver {self.driver})" if self.driver else "")
        versions = ", ".join(f"{name} {version}" for name, version in self.packages.items())
        return (
            f"{self.address} ({self.name}): {gpus}, {self.cpus:g} CPUs, {self.memory / GIB:.1f} GiB memory, object "
            f"store {self.store / GIB:.1f} GiB in {self.shared / GIB:.1f} GiB of shared memory; {self.python}; "
            f"{versions}"
        )


def inspect(packages: Sequence[str]) -> dict[str, Any]:
    """On a node: what it has. Needs nothing of this package, which may not be there.

    Args:
        packages: Distributions whose versions are asked for.
    """
    import importlib.metadata
    import os
    import platform
    import socket
    import subprocess
    import sys

    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        driver = said.stdout.split()[0] if said.returncode == 0 and said.stdout.split() else ""
    except (OSError, subprocess.TimeoutExpired):
        driver = ""
    shared = os.statvfs("/dev/shm")
    return {
        "name": socket.gethostname(),
        "shared": shared.f_blocks * shared.f_frsize,
        "driver": driver,
        "python": f"Python {platform.python_version()} at {sys.executable}",
        "packages": found,
    }


def differences(nodes: Sequence[NodeReport]) -> list[str]:
    """Packages whose versions differ between nodes, a line each."""
    asked = [node for node in nodes if not node.problem]
    found = []
    for name in PACKAGES:
        versions = {node.packages.get(name, "missing") for node in asked}
        if len(versions) > 1:
            found.append(
                f"{name}: " + ", ".join(f"{node.packages.get(name, 'missing')} on {node.address}" for node in asked)
            )
    return found


def report_nodes(address: str, environment: Mapping[str, str]) -> list[NodeReport]:
    """Ask every node of a cluster.

    Args:
        address: Of the cluster, as Ray takes it from one of its nodes.
        environment: Environment variables of this command.

    Raises:
        SetupError: Nothing answers there.
    """
    if "://" in address:
        raise SetupError(
            f"{address} is where jobs are submitted; to look at the nodes, run this on one, with RAY_ADDRESS=auto"
        )
    if problem := unanswered(address):
        raise SetupError(problem)
    command = [sys.executable, "-m", "agentic_video.launch.node_report", address]
    variables = {**environment, **auth_mode(environment)}
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=2 * SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"the Ray cluster at {address} doesn't answer within {2 * SECONDS:g} s") from error
    found = result_of(done, f"no Ray cluster can be joined at {address}")
    return [NodeReport(**one) for one in found]


def _ask(address: str) -> list[NodeReport]:
    """Join the cluster and ask."""
    import ray

    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    alive = [node for node in ray.nodes() if node["Alive"]]
    answers = ask_each(alive, inspect, (PACKAGES,), SECONDS)
    return [_report(node, *answer) for node, answer in zip(alive, answers, strict=True)]


def _report(node: Mapping[str, Any], found: Mapping[str, Any] | None, problem: str) -> NodeReport:
    """What Ray says of a node, and what came back from it."""
    address, counts = node["NodeManagerAddress"], node["Resources"]
    if found is None:
        return NodeReport(address, problem=problem)
    return NodeReport(
        address=address,
        cpus=counts.get("CPU", 0.0),
        gpus=counts.get("GPU", 0.0),
        memory=counts.get("memory", 0.0),
        store=counts.get("object_store_memory", 0.0),
        **found,
    )


def main() -> None:
    """Command line; see the module."""
    print(RESULT + json.dumps([asdict(node) for node in _ask(sys.argv[1])]), flush=True)
    os._exit(0)  # without Ray's goodbye, which waits for a node that hangs


if __name__ == "__main__":
    main()
