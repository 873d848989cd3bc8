import subprocess
import sys
import threading
from typing import Any

from agentic_video.training.node_watch import EXIT_STATUS, NodeWatch, gone


def node(name: str, alive: bool = True, cpus: float = 8.0) -> dict[str, Any]:
    return {"NodeID": name, "NodeManagerAddress": f"10.0.0.{name}", "Alive": alive, "Resources": {"CPU": cpus}}


def test_a_node_is_gone_when_it_is_dead_or_not_listed() -> None:
    used = {"1": "10.0.0.1", "2": "10.0.0.2", "3": "10.0.0.3"}
    assert gone(used, [node("1"), node("2", alive=False)]) == ["10.0.0.2", "10.0.0.3"]
    assert gone(used, [node("1"), node("2"), node("3"), node("4", alive=False)]) == []


def test_a_run_ends_with_its_node() -> None:
    states = [[node("1"), node("2"), node("3", cpus=0.0)]]
    said: list[str] = []
    ended = threading.Event()

    def end(message: str) -> None:
        said.append(message)
        ended.set()

    NodeWatch(lambda: states[-1], end, seconds=0.01)
    states.append([node("1"), node("2"), node("4")])  # a head without processors may go, others may come
    assert not ended.wait(0.1)
    states.append([node("1"), node("2", alive=False)])
    assert ended.wait(30)
    assert said[0].startswith("agentic_video could not go on: node 10.0.0.2 is gone; ")


def test_what_has_stopped_says_nothing() -> None:
    states = [[node("1")]]
    said: list[str] = []
    watch = NodeWatch(lambda: states[-1], said.append, seconds=0.01)
    watch.stop()
    states.append([])
    assert not threading.Event().wait(0.1) and said == []


def test_the_process_ends_though_its_main_thread_waits() -> None:
    program = (
        "import threading\n"
        "from agentic_video.training.node_watch import NodeWatch, end_process\n"
        "nodes = [{'NodeID': '1', 'NodeManagerAddress': 'a', 'Alive': True, 'Resources': {'CPU': 1.0}}]\n"
        "NodeWatch(lambda: list(nodes), end_process, seconds=0.01)\n"
        "nodes.clear()\n"
        "threading.Event().wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == EXIT_STATUS and "node a is gone" in done.stderr
