"""The Ray cluster that a job runs on, looked at before verl starts: its size, and what each node can see.

``python -m agentic_video.launch.nodes ADDRESS`` reads a :class:`Wanted` as json from its standard input and prints a
:class:`Cluster` as json. It is a process of its own because it joins the cluster.
"""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agentic_video.utils.environment import DISTRIBUTION
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.utils.ray_cluster import unanswered

JOIN_SECONDS = 60.0
"""How long nodes and GPUs that are missing are waited for."""
LOOK_SECONDS = 60.0
"""How long one node may take to look at its files, the start of a process on it included."""
FILE_SECONDS = 20.0
"""How long one file may take to answer: a dead network disk never does."""
RESULT = "nodes: "
"""What the line with the result begins with: Ray prints lines of its own."""


@dataclass(frozen=True)
class Wanted:
    """What a job needs of a cluster.

    Attributes:
        nodes: Number of machines.
        gpus: GPUs on each.
        files: Files and folders that each node must be able to read.
        shared: A file that was just written, which each node must see as it is; empty for none.
        content: What stands in it.
        variables: Environment variables of the job's processes.
        beside: GPUs beside these, wherever they are, by the block of the config whose ``nnodes`` and
            ``n_gpus_per_node`` ask for them.
    """

    nodes: int
    gpus: int
    files: tuple[str, ...] = ()
    shared: str = ""
    content: str = ""
    variables: Mapping[str, str] | None = None
    beside: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Node:
    """One machine of a cluster.

    Attributes:
        address: Its IP address.
        cpus: CPUs that Ray counts there.
        gpus: GPUs that Ray counts there.
        memory: Bytes of memory that Ray counts there.
        problems: What it can't see, or what differs there, a line each.
    """

    address: str
    cpus: float
    gpus: float
    memory: float
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cluster:
    """What was found.

    Attributes:
        nodes: Those that are alive.
        problem: Why the job can't run on them as a whole; empty where it can.
    """

    nodes: tuple[Node, ...] = ()
    problem: str = ""


def check_cluster(address: str, wanted: Wanted, environment: Mapping[str, str]) -> Cluster:
    """Look at a cluster, and at what its nodes can see.

    Args:
        address: Of the cluster, as Ray takes it.
        wanted: What the job needs.
        environment: Environment variables of this command.

    Raises:
        SetupError: Nothing answers there, it is too small or busy, or a node can't see a file; the message names both.
    """
    if problem := unanswered(address):
        raise SetupError(problem)
    command = [sys.executable, "-m", "agentic_video.launch.nodes", address]
    looked = subprocess.run(
        command, input=json.dumps(asdict(wanted)), env=dict(environment), capture_output=True, text=True, check=False
    )
    found = result_of(looked, f"the Ray cluster at {address} can't be looked at")
    nodes = tuple(Node(**{**node, "problems": tuple(node["problems"])}) for node in found["nodes"])
    if found["problem"]:
        raise SetupError(found["problem"])
    if bad := [f"node {node.address}: {problem}" for node in nodes for problem in node.problems]:
        more = f" (and {len(bad) - 1} more: {'; '.join(bad[1:4])})" if len(bad) > 1 else ""
        raise SetupError(bad[0] + more)
    return Cluster(nodes)


def result_of(done: subprocess.CompletedProcess[str], problem: str) -> Any:
    """What a program that joined a cluster printed as its result, which is json.

    Args:
        done: The program.
        problem: What is said where it printed none, before its last words.

    Raises:
        SetupError: It printed none.
    """
    line = next((line for line in done.stdout.splitlines() if line.startswith(RESULT)), None)
    if line is None:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise SetupError(f"{problem}: {said[-1] if said else 'no answer'}")
    return json.loads(line.removeprefix(RESULT))


def ask_each(
    nodes: Sequence[Mapping[str, Any]], function: Callable[..., Any], arguments: Sequence[Any], seconds: float
) -> Iterator[tuple[Any, str]]:
    """Run a function on nodes of the cluster that this process has joined, on all at the same time.

    Args:
        nodes: As Ray lists them.
        function: Pickled by value where it is defined in the program that runs: a node may lack this package.
        arguments: Its arguments.
        seconds: How long all nodes together may take, the start of a process on each included.

    Yields:
        For each node what the function returned, and an empty text; or None, and why there is nothing.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(function)
    calls = [
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(*arguments)
        for node in nodes
    ]
    ray.wait(calls, num_returns=len(calls), timeout=seconds)
    for call in calls:
        try:
            yield ray.get(call, timeout=0), ""
        except ray.exceptions.GetTimeoutError:
            yield None, f"no answer within {seconds:g} s"
        except ray.exceptions.RayError as error:
            yield None, f"a process can't be started there: {one_line(error)[:300]}"


def missing(wanted: Wanted, gpus: Sequence[float], free: float) -> str:
    """What a cluster lacks for a job; empty where it has all.

    Args:
        wanted: What the job needs.
        gpus: GPUs of each node that is alive.
        free: GPUs that no other job holds.
    """
    fit = sum(count >= wanted.gpus for count in gpus)
    if fit < wanted.nodes:
        has = ", ".join(f"{count:g}" for count in gpus)
        on_cpus = (wanted.variables or {}).get("VERL_PLATFORM") == "cpu"
        remedy = (
            f"it uses none, but Ray must count them: start it with --num-gpus={wanted.gpus} on nodes without GPUs"
            if on_cpus and len(gpus) >= wanted.nodes
            else "set NNODES and GPUS_PER_NODE, or start Ray on the others"
        )
        return (
            f"it has {len(gpus)} node(s) with {has} GPU(s); the run asks for {wanted.nodes} x {wanted.gpus} "
            f"(trainer.nnodes x trainer.n_gpus_per_node): {remedy}"
        )
    beside = wanted.beside or {}
    whole = wanted.nodes * wanted.gpus + sum(beside.values())
    if sum(gpus) < whole:
        return (
            f"it has {sum(gpus):g} GPU(s) in all; {asked_in_all(wanted.nodes, wanted.gpus, beside)}: ask for fewer, or "
            "start Ray on more nodes"
        )
    if free < whole:
        return f"only {free:g} of its {sum(gpus):g} GPUs are free: another job holds the others (ray status)"
    return ""


def asked_in_all(nodes: int, gpus: int, beside: Mapping[str, int]) -> str:
    """How many GPUs a run asks for, and by which keys.

    Args:
        nodes: Machines of the trainer.
        gpus: The trainer's on each.
        beside: See :class:`Wanted`.
    """
    pools = " and ".join(f"{count} ({block}.nnodes x {block}.n_gpus_per_node)" for block, count in beside.items())
    return (
        f"the run asks for {nodes * gpus + sum(beside.values())}, {nodes} x {gpus} "
        f"(trainer.nnodes x trainer.n_gpus_per_node) and {pools}"
    )


def look(wanted: dict[str, Any], versions: dict[str, str], seconds: float) -> list[str]:
    """On a node: what its Python and its files lack. Needs nothing of this package, which may not be there.

    Args:
        wanted: The fields of a :class:`Wanted`.
        versions: What the launcher's Python has, by distribution.
        seconds: How long one file may take.

    Returns:
        A line for each problem.
    """
    import importlib.metadata
    import os
    import sys
    import threading

    problems = []
    for name, version in versions.items():
        try:
            here = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            here = ""
        if here != version:
            problems.append(
                f"{sys.executable} has {name + ' ' + here if here else 'no ' + name}, the launcher's has {version}; "
                "Ray must be started there from the same environment"
            )

    def seen(path: str, found: list[str]) -> None:
        try:
            if os.path.isdir(path):
                os.listdir(path)
            else:
                with open(path, "rb") as stream:
                    stream.read(1)
            if path == wanted["shared"]:
                with open(path, encoding="utf-8") as text:
                    if text.read() != wanted["content"]:
                        raise FileNotFoundError(2, "another file")
            found.append("")
        except OSError as error:
            found.append((error.strerror or str(error)).lower())

    for path in dict.fromkeys([*wanted["files"], wanted["shared"]]):
        if not path:
            continue
        found: list[str] = []
        thread = threading.Thread(target=seen, args=(path, found), daemon=True)
        thread.start()
        thread.join(seconds)
        folder = os.path.dirname(path)
        if not found:
            problems.append(
                f"{path}: no answer within {seconds:g} s; is the file system of {folder} mounted and alive?"
            )
            break  # the next one there would hang as well
        if found[0] and path == wanted["shared"]:
            problems.append(
                f"{folder} isn't the launcher's folder; OUTPUT_DIR must be on a file system that all nodes share, as "
                "checkpoints are written on each"
            )
        elif found[0]:
            problems.append(f"{path}: {found[0]}; it must be at the same path on every node")
    return problems


def _survey(address: str, wanted: Wanted) -> Cluster:
    import importlib.metadata

    import ray

    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": dict(wanted.variables or {})},
        )
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.AuthenticationError) as error:
        asked = "a cluster that asks for a token wants RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN"
        return Cluster(problem=f"no Ray cluster can be joined at {address} ({one_line(error)[:200]}); {asked}")
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        alive = [node for node in ray.nodes() if node["Alive"]]
        gpus = [node["Resources"].get("GPU", 0.0) for node in alive]
        lack = missing(wanted, gpus, ray.available_resources().get("GPU", 0.0))
        if not lack or time.monotonic() > deadline:
            break
        time.sleep(2)
    if lack:
        return Cluster(problem=f"the Ray cluster at {address} can't take the run: {lack}")
    versions = {name: importlib.metadata.version(name) for name in (DISTRIBUTION, "verl", "torch", "transformers")}
    answers = ask_each(alive, look, (asdict(wanted), versions, FILE_SECONDS), LOOK_SECONDS)
    return Cluster(tuple(_node(node, *answer) for node, answer in zip(alive, answers, strict=True)))


def _node(node: Mapping[str, Any], found: Sequence[str] | None, problem: str) -> Node:
    """What Ray says of a node, and what came back from it."""
    resources = node["Resources"]
    return Node(
        address=node["NodeManagerAddress"],
        cpus=resources.get("CPU", 0.0),
        gpus=resources.get("GPU", 0.0),
        memory=resources.get("memory", 0.0),
        problems=(problem,) if problem else tuple(found or ()),
    )


def main() -> None:
    """Command line; see the module."""
    fields = json.load(sys.stdin)
    wanted = Wanted(**{**fields, "files": tuple(fields["files"])})
    print(RESULT + json.dumps(asdict(_survey(sys.argv[1], wanted))), flush=True)
    os._exit(0)  # without Ray's goodbye, which waits for a node that hangs


if __name__ == "__main__":
    main()
