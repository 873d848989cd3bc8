"""Ends a run when one of its nodes or processes is gone: verl would wait for its episodes forever."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentic_video.utils.errors import CANNOT_CONTINUE

SECONDS = 5.0
"""Between two looks at the nodes and the actors."""
EXIT_STATUS = 3
SAYING_SECONDS = 2.0
"""Ray passes on a process's last lines only if it lives a little longer."""

Listing = Callable[[], Iterable[Mapping[str, Any]]]
"""Lists nodes or actors as Ray does."""


def gone(used: Mapping[str, str], nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Addresses of the nodes in ``used`` (addresses by id) that ``ray.nodes()`` doesn't list as alive."""
    alive = {node["NodeID"] for node in nodes if node["Alive"]}
    return [address for node, address in used.items() if node not in alive]


def died(used: Iterable[str], actors: Iterable[Mapping[str, Any]]) -> list[str]:
    """Class, process, place and cause of death of the dead ones among the actors whose ids are in ``used``."""
    ids = set(used)
    return [
        f"{actor['ActorClassName']} (process {actor['Pid']} on {actor['Address']['IPAddress']}) has died{_cause(actor)}"
        for actor in actors
        if actor["ActorID"] in ids and actor["State"] == "DEAD"
    ]


def _cause(actor: Mapping[str, Any]) -> str:
    """Ray's cause of an actor's death, after a colon, without its guesses."""
    context = getattr(actor.get("DeathCause"), "actor_died_error_context", None)
    text = " ".join(str(getattr(context, "error_message", "")).split())
    text = (text.partition("Worker exit detail: ")[2] or text).partition(" Some common causes")[0]
    return f": {text.rstrip('.')}" if text else ""


def run_actors() -> list[Mapping[str, Any]]:
    """All actors of this Ray job; ``ray.util.state``, the public way, needs Ray's dashboard."""
    import ray
    from ray._private.state import actors

    job = ray.get_runtime_context().get_job_id()
    return [actor for actor in actors().values() if actor["JobID"] == job]


class RunWatch:
    """Watches a run's first actors, and their nodes, from a thread, and calls ``end`` when one is gone.

    Later actors, such as frame stores, are recreated when they die. A node without any may go.
    """

    def __init__(self, nodes: Listing, actors: Listing, end: Callable[[str], None], seconds: float = SECONDS) -> None:
        self._nodes, self._actors, self._end, self._seconds = nodes, actors, end, seconds
        first = list(actors())
        self._used_actors = {actor["ActorID"] for actor in first if actor["State"] != "DEAD"}
        self._used_nodes: dict[str, str] = {}
        self._note(first, nodes())
        self._done = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._done.set()

    def _note(self, actors: Iterable[Mapping[str, Any]], nodes: Iterable[Mapping[str, Any]]) -> None:
        """Note the nodes of the run's actors; those that are still starting have none yet."""
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in nodes}
        homes = {actor["Address"]["NodeID"] for actor in actors if actor["ActorID"] in self._used_actors}
        self._used_nodes |= {home: addresses[home] for home in homes if home in addresses}

    def _watch(self) -> None:
        while not self._done.wait(self._seconds):
            # If Ray itself is gone, it ends this process.
            with contextlib.suppress(Exception):
                actors, listed = list(self._actors()), list(self._nodes())
                self._note(actors, listed)
                lost, nodes = died(self._used_actors, actors), gone(self._used_nodes, listed)
                if lost and not nodes:  # actors of a node may be missed before the node is
                    if self._done.wait(self._seconds):
                        return
                    nodes = gone(self._used_nodes, self._nodes())
                if nodes:
                    self._end(
                        f"{CANNOT_CONTINUE}: node {', '.join(nodes)} is gone; bring it back and start the "
                        "same command, or continue with fewer nodes from the run's model (docs/cluster.md)"
                    )
                    return
                if lost:
                    self._end(
                        f"{CANNOT_CONTINUE}: {'; '.join(lost)}; start the same command (if "
                        "it was killed for memory, dmesg says so)"
                    )
                    return


def end_process(message: str) -> None:
    """Print why, and end this process, whose threads wait forever."""
    print(message, file=sys.stderr, flush=True)
    time.sleep(SAYING_SECONDS)
    os._exit(EXIT_STATUS)
