import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from agentic_video.training.logs.run_watch import EXIT_STATUS, RunWatch, died, gone


def node(name: str, alive: bool = True) -> dict[str, Any]:
    return {"NodeID": name, "NodeManagerAddress": f"10.0.0.{name}", "Alive": alive}


def actor(name: str, state: str = "ALIVE", cause: str = "", at: str = "1") -> dict[str, Any]:
    context = SimpleNamespace(actor_died_error_context=SimpleNamespace(error_message=cause))
    address = {"IPAddress": f"10.0.0.{at}", "NodeID": at}
    facts = {"ActorID": name, "ActorClassName": f"Worker{name}", "Pid": 7, "State": state}
    return {**facts, "Address": address, "DeathCause": context}


def test_a_node_is_gone_when_it_is_dead_or_not_listed() -> None:
    used = {"1": "10.0.0.1", "2": "10.0.0.2", "3": "10.0.0.3"}
    assert gone(used, [node("1"), node("2", alive=False)]) == ["10.0.0.2", "10.0.0.3"]
    assert gone(used, [node("1"), node("2"), node("3"), node("4", alive=False)]) == []


def test_a_run_ends_with_its_node() -> None:
    states = [[node("1"), node("2"), node("3")]]
    said: list[str] = []
    ended = threading.Event()

    def end(message: str) -> None:
        said.append(message)
        ended.set()

    RunWatch(lambda: states[-1], lambda: [actor("a"), actor("b", at="2")], end, seconds=0.01)
    states.append([node("1"), node("2"), node("4")])  # one without an actor of this run may go, others may come
    assert not ended.wait(0.1)
    states.append([node("1"), node("2", alive=False)])
    assert ended.wait(30)
    assert said[0].startswith("agentic_video could not go on: node 10.0.0.2 is gone; ")


def test_an_actor_that_was_being_made_has_its_node_later() -> None:
    waits = actor("b", "PENDING_CREATION", at="")
    nodes = [[node("1"), node("2")]] * 3 + [[node("1")]]
    said = ended_with(nodes, [[actor("a"), waits], [actor("a"), actor("b", at="2")]])
    assert said.startswith("agentic_video could not go on: node 10.0.0.2 is gone; ")


def test_what_a_dead_actor_was_and_why_it_died() -> None:
    cause = (
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "
        "Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the sun"
    )
    listed = [actor("a"), actor("b", "DEAD", cause), actor("c", "DEAD"), actor("d", "RESTARTING"), actor("e", "DEAD")]
    assert died(["a", "b", "d", "e"], listed) == [
        "Workerb (process 7 on 10.0.0.1) has died: Worker unexpectedly exits with a connection error code 2. End of "
        "file",
        "Workere (process 7 on 10.0.0.1) has died",
    ]


def ended_with(nodes: list[list[Any]], actors: list[list[Any]]) -> str:
    """What is said at the end where the watch sees one list after the other; the last one stays."""
    said: list[str] = []
    ended = threading.Event()

    def end(message: str) -> None:
        said.append(message)
        ended.set()

    def turns(states: list[list[Any]]) -> Callable[[], list[Any]]:
        return lambda: states.pop(0) if len(states) > 1 else states[0]

    RunWatch(turns(nodes), turns(actors), end, seconds=0.01)
    assert ended.wait(30)
    return said[0]


def test_a_run_ends_with_an_actor_that_it_began_with() -> None:
    first = [actor("a", "PENDING_CREATION"), actor("c", "DEAD")]
    later = [actor("a"), actor("b", "DEAD"), actor("c", "DEAD")]  # such as a frame store: others make it anew
    said = ended_with([[node("1")]], [first, later, later, [actor("a", "DEAD")]])
    assert said.startswith("agentic_video could not go on: Workera (process 7 on 10.0.0.1) has died; start the same ")


@pytest.mark.parametrize("looks", [1, 2])
def test_a_node_that_takes_its_actors_along_is_named(looks: int) -> None:
    nodes = [[node("1"), node("2")]] * looks + [[node("1")]]
    said = ended_with(nodes, [[actor("a", at="2")], [actor("a", "DEAD", at="2")]])
    assert said.startswith("agentic_video could not go on: node 10.0.0.2 is gone; ")


def test_a_look_that_fails_is_not_the_last() -> None:
    looks = iter([[actor("a")], OSError("no answer"), [actor("a", "DEAD")]])
    said: list[str] = []
    ended = threading.Event()

    def actors() -> list[Any]:
        look = next(looks)
        if isinstance(look, OSError):
            raise look
        return look

    def end(message: str) -> None:
        said.append(message)
        ended.set()

    RunWatch(lambda: [node("1")], actors, end, seconds=0.01)
    assert ended.wait(30) and "Workera" in said[0]


def test_what_has_stopped_says_nothing() -> None:
    states = [[node("1")]]
    said: list[str] = []
    watch = RunWatch(lambda: states[-1], lambda: [actor("a")], said.append, seconds=0.01)
    watch.stop()
    states.append([])
    assert not threading.Event().wait(0.1) and said == []


def test_the_process_ends_though_its_main_thread_waits() -> None:
    program = (
        "import threading\n"
        "from agentic_video.training.logs.run_watch import RunWatch, end_process\n"
        "nodes = [{'NodeID': '1', 'NodeManagerAddress': 'a', 'Alive': True}]\n"
        "actors = [{'ActorID': 'x', 'State': 'ALIVE', 'Address': {'NodeID': '1'}}]\n"
        "RunWatch(lambda: list(nodes), lambda: actors, end_process, seconds=0.01)\n"
        "nodes.clear()\n"
        "threading.Event().wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == EXIT_STATUS and "node a is gone" in done.stderr
