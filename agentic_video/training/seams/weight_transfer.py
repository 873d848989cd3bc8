"""What the actor does while vLLM loads its weights: it waits, but not for one that has given up."""

from concurrent.futures import Future
from typing import Any

LOOK_MS = 1000
"""Milliseconds from one look at the loading side to the next."""
LATE_MS = 60_000
"""So long an answer of a task that has ended well may take."""


class WatchedSocket:
    """The sender's socket of a transfer, whose answers come from a task that may fail without one.

    Args:
        socket: A ZeroMQ socket of the kind REQ.
        loading: The end of the task that answers.
    """

    def __init__(self, socket: Any, loading: "Future[Any]"):
        self._socket = socket
        self._loading = loading

    def send_pyobj(self, message: Any) -> None:
        """Send a Python object."""
        self._socket.send_pyobj(message)

    def recv(self) -> bytes:
        """The answer.

        Raises:
            Exception: What the loading task failed with.
            RuntimeError: It ended, and answered nothing.
        """
        while not self._socket.poll(LOOK_MS):
            if not self._loading.done():
                continue
            self._loading.result()
            if not self._socket.poll(LATE_MS):
                raise RuntimeError("the engine's loading of weights ended before it had all of them")
        answer: bytes = self._socket.recv()
        return answer

    def close(self) -> None:
        """Close it."""
        self._socket.close()
