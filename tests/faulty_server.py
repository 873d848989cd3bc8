"""A real local server that speaks the chat completions API and misbehaves on demand."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

import pytest


@dataclass(frozen=True)
class Reply:
    """One answer of the server."""

    content: str | None = ""
    """The assistant's text."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """The whole body, instead of a completion with ``content``."""
    hang_up: bool = False
    """Close the connection without an answer."""


Script = Callable[[dict[str, Any], int], Reply]
"""From a request's body and its number, counted from 0, to the reply."""


class FaultyServer:
    """Answers each request by ``script``, and keeps the bodies, the paths and the keys; port 0 is any free one.

    ``models`` are listed to whoever asks; without, a request for the list fails.
    """

    def __init__(self, script: Script, port: int = 0, models: Sequence[Mapping[str, Any]] | None = None):
        self.models = models
        self.bodies: list[dict[str, Any]] = []
        self.paths: set[str] = set()
        self.keys: set[str | None] = set()
        counter = itertools.count()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.bodies.append(body)
                outer.paths.add(self.path)
                outer.keys.add(self.headers["Authorization"])
                reply = script(body, next(counter))
                if reply.hang_up:
                    self.close_connection = True
                    return
                choice = {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": reply.content},
                }
                completion = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
                data = reply.body if reply.body is not None else json.dumps(completion).encode()
                self.respond(reply, data)

            def do_GET(self) -> None:
                if outer.models is None:
                    return self.send_error(501)
                self.respond(Reply(), json.dumps({"data": list(outer.models)}).encode())

            def respond(self, reply: Reply, data: bytes) -> None:
                try:
                    self.send_response(reply.status)
                    for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:  # the client gave up waiting
                    self.close_connection = True

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 128
            daemon_threads = True

        self._server = Server(("127.0.0.1", port), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.address}/v1"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Serve(Protocol):
    """Starts a server that runs until the end of the test."""

    def __call__(self, script: Script, models: Sequence[Mapping[str, Any]] | None = None) -> FaultyServer: ...


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[FaultyServer] = []

    def start(script: Script, models: Sequence[Mapping[str, Any]] | None = None) -> FaultyServer:
        servers.append(FaultyServer(script, models=models))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@contextmanager
def answering(status: int, body: bytes, key: str = "") -> Iterator[str]:
    """Address of a server that gives one answer to each GET, such as a list of models; with ``key`` to its owner."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            refused = key and self.headers["Authorization"] != f"Bearer {key}"
            self.send_response(401 if refused else status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
