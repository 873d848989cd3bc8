"""Ends a run whose node is gone: verl would wait for its episodes for ever."""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

SECONDS = 5.0
"""Between two looks at the nodes."""
EXIT_STATUS = 3


def gone(used: Mapping[str, str], nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Addresses of the nodes that a run uses and that aren't alive any more.

    Args:
        used: Their addresses, by id.
        nodes: What Ray says of all nodes (``ray.nodes()``).
    """
    alive = {node["NodeID"] for node in nodes if node["Alive"]}
    return [address for node, address in used.items() if node not in alive]


class NodeWatch:
    """Watches the nodes of the Ray cluster that a run began on, from a thread of its own.

    verl puts workers on all nodes with processors. When one dies, their episodes and what its storage held are lost,
    but the trainer goes on asking for them.

    Args:
        nodes: What lists the nodes.
        end: What is called with a message when one is gone.
        seconds: Between two looks.
    """

    def __init__(
        self,
        nodes: Callable[[], Iterable[Mapping[str, Any]]],
        end: Callable[[str], None],
        seconds: float = SECONDS,
    ) -> None:
        self._nodes, self._end, self._seconds = nodes, end, seconds
        self._used = {
            node["NodeID"]: node["NodeManagerAddress"]
            for node in nodes()
            if node["Alive"] and node["Resources"].get("CPU")
        }
        self._done = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._done.set()

    def _watch(self) -> None:
        while not self._done.wait(self._seconds):
            lost = gone(self._used, self._nodes())
            if lost:
                self._end(
                    f"agentic_video could not go on: node {', '.join(lost)} is gone; bring it back and start the same "
                    "command, or go on with fewer nodes from the run's model (docs/cluster.md)"
                )
                return


def end_process(message: str) -> None:
    """Say why, and end this process at once: its threads wait for what never comes."""
    print(message, file=sys.stderr, flush=True)
    os._exit(EXIT_STATUS)
