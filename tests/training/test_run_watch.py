import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from agentic_video.training.logs.run_watch import EXIT_STATUS, RunWatch, died, gone
from agentic_video.utils.errors import CANNOT_CONTINUE


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


def states_of(*states: Any) -> Callable[[], list[Any]]:
    left = list(states)

    def look() -> list[Any]:
        state = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(state, OSError):
            raise state
        return state

    return look


ONE, BOTH = [node("1")], [node("1"), node("2")]


@pytest.mark.parametrize(
    ("nodes", "actors", "named"),
    [
        # a node without an actor of this run may go, others may come
        (
            [[*BOTH, node("3")]] * 2 + [[*BOTH, node("4")]] * 3 + [[node("1"), node("2", alive=False)]],
            [[actor("a"), actor("b", at="2")]],
            "node 10.0.0.2 is gone",
        ),
        # an actor that was being made has its node later
        (
            [BOTH] * 3 + [ONE],
            [[actor("a"), actor("b", "PENDING_CREATION", at="")], [actor("a"), actor("b", at="2")]],
            "node 10.0.0.2 is gone",
        ),
        # others than the first, such as a frame store, are made again
        (
            [ONE],
            [[actor("a", "PENDING_CREATION"), actor("c", "DEAD")]]
            + [[actor("a"), actor("b", "DEAD"), actor("c", "DEAD")]] * 2
            + [[actor("a", "DEAD")]],
            "Workera (process 7 on 10.0.0.1) has died",
        ),
        # a node that takes its actors along, seen before them or after
        ([BOTH, ONE], [[actor("a", at="2")], [actor("a", "DEAD", at="2")]], "node 10.0.0.2 is gone"),
        ([BOTH, BOTH, ONE], [[actor("a", at="2")], [actor("a", "DEAD", at="2")]], "node 10.0.0.2 is gone"),
        # a look that fails is not the last
        ([ONE], [[actor("a")], OSError("no answer"), [actor("a", "DEAD")]], "Workera (process 7 on 10.0.0.1) has died"),
    ],
)
def test_the_end_of_a_run(nodes: list[Any], actors: list[Any], named: str) -> None:
    messages: list[str] = []
    ended = threading.Event()

    def end(message: str) -> None:
        messages.append(message)
        ended.set()

    RunWatch(states_of(*nodes), states_of(*actors), end, seconds=0.01)
    assert ended.wait(30)
    assert messages[0].startswith(f"{CANNOT_CONTINUE}: {named}")


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
