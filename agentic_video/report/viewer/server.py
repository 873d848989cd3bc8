"""Serves the page to this machine: for runs too large for one file. Pictures are made when they are looked at."""

import re
import threading
from collections.abc import Callable
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agentic_video.report.viewer.episodes import Episodes, Grouping
from agentic_video.report.viewer.index import index_of
from agentic_video.report.viewer.page import all_parts, head, policy, tail
from agentic_video.report.viewer.pictures import make_strip
from agentic_video.report.viewer.safe_json import to_json
from agentic_video.video.store import FrameStore, StoreConfig

HOST = "127.0.0.1"
STORE_BYTES = 256 * 2**20
_HEADERS = {
    "Content-Security-Policy": policy("server") + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class ViewServer(ThreadingHTTPServer):
    """A server of one report, for this machine only.

    Args:
        port: 0 for a free one; ``server_port`` says which.
        side: Longest side of a picture in pixels.

    Raises:
        OSError: The port is taken.
    """

    daemon_threads = True

    def __init__(self, episodes: Episodes, grouping: Grouping, title: str, port: int, side: int):
        self.episodes = episodes
        self.side = side
        self.page = (head(index_of(episodes, grouping, title), "server") + tail()).encode("utf-8")
        self.store = FrameStore(StoreConfig(max_bytes=STORE_BYTES))
        # A search reads everything; two at a time would only be slower.
        self.searching = threading.Lock()
        super().__init__((HOST, port), _Handler)  # last: when the port is taken, it closes what there is

    def server_close(self) -> None:
        super().server_close()
        self.store.close()


class _Handler(BaseHTTPRequestHandler):
    """Answers with the page, an episode, the pictures of one part of it, or what a search finds; nothing else."""

    server: ViewServer
    protocol_version = "HTTP/1.1"
    server_version = "agentic-video"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        # Another name for this address is a page elsewhere that wants to read what is served here (DNS rebinding).
        if self.headers.get("Host") not in {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}:
            self._send(403, "text/plain", b"open http://127.0.0.1 with this port instead\n")
            return
        try:
            url = urlsplit(self.path)
        except ValueError:  # a broken address in brackets
            url = urlsplit("/none")
        routes: dict[str, Callable[..., Any]] = {
            r"/api/episode/(\d{1,9})": self._episode,
            r"/api/pictures/(\d{1,9})/(\d{1,4})": self._pictures,
            r"/api/search": lambda: self._search(url.query),
        }
        if url.path == "/":
            self._send(200, "text/html; charset=utf-8", self.server.page)
            return
        for pattern, answer in routes.items():
            if match := re.fullmatch(pattern, url.path):
                try:
                    value = answer(*(int(number) for number in match.groups()))
                except IndexError:
                    break
                self._send(200, "application/json", to_json(value).encode("ascii"))
                return
        self._send(404, "text/plain", b"there is no such thing here\n")

    def _episode(self, number: int) -> dict[str, Any]:
        return self.server.episodes.detail(number)

    def _pictures(self, number: int, block: int) -> dict[str, Any]:
        """Pictures of the frames of one part of an episode: 0 the opening, k what followed turn k."""
        parts = all_parts(self.server.episodes.detail(number))[block]
        indices = [part[0] for part in parts if isinstance(part, list)]
        return asdict(make_strip(self.server.store, self.server.episodes.video(number), indices, self.server.side))

    def _search(self, query: str) -> list[int]:
        text = parse_qs(query).get("q", [""])[0]
        with self.server.searching:
            return self.server.episodes.search(text)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line a picture would bury the address."""
