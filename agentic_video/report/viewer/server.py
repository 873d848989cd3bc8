"""Local server of the page, for runs too large for one file; pictures are made on demand."""

import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agentic_video.report.viewer.episodes import key_in
from agentic_video.report.viewer.index import index_of, news_of
from agentic_video.report.viewer.page import all_parts, head, policy, tail
from agentic_video.report.viewer.pictures import make_strip
from agentic_video.report.viewer.safe_json import to_json
from agentic_video.report.viewer.sources import EpisodeReader
from agentic_video.video.store import FrameStore
from agentic_video.video.store_config import StoreConfig

HOST = "127.0.0.1"
OWN_NAME = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE)
"""Names of this machine in a browser. The port differs at the other end of an SSH tunnel."""
STORE_BYTES = 256 * 2**20
POLL_S = 3.0
"""Seconds between two requests of a page for updates; files are checked no more often."""
_HEADERS = {
    "Content-Security-Policy": policy("server") + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class ViewServer(ThreadingHTTPServer):
    """A server of growing episodes, for this machine only; port 0 takes a free one (``server_port``)."""

    daemon_threads = True

    def __init__(self, reader: EpisodeReader, title: str, port: int, side: int, poll_s: float = POLL_S):
        self.reader = reader
        self.episodes = reader.episodes
        self.title = title
        self.side = side
        self.store = FrameStore(StoreConfig(max_bytes=STORE_BYTES))
        # A search reads everything; two at a time would only be slower.
        self.searching = threading.Lock()
        self.closed = False
        self._poll_s = poll_s
        self._reading = threading.Lock()
        # Tells pages of an earlier server, whose episodes had other numbers, from this one's.
        self._name = secrets.token_hex(8)
        self._version = 0
        self._looked = time.monotonic()
        self._page: tuple[int, bytes] = (-1, b"")
        super().__init__((HOST, port), _Handler)  # last: when the port is taken, it closes what there is

    def page(self) -> bytes:
        """The page with all current episodes."""
        with self._reading:
            self._look()
            if self._page[0] != self._version:
                index = index_of(self.episodes, self.reader.grouping, self.title)
                live = {"version": self._named_version, "poll_s": self._poll_s}
                self._page = self._version, (head({**index, **live}, "server") + tail()).encode("utf-8")
            return self._page[1]

    def news(self, version: str, have: int, have_questions: int) -> dict[str, Any]:
        """Content that a page of a version lacks; only ``version`` for an up-to-date page or another server's."""
        with self._reading:
            self._look()
            ours = version.startswith(f"{self._name}-")
            if not ours or version == self._named_version:
                return {"version": self._named_version}
            news = news_of(self.episodes, self.reader.grouping, self.title, have, have_questions)
            return {**news, "version": self._named_version}

    @property
    def _named_version(self) -> str:
        return f"{self._name}-{self._version}"

    def _look(self) -> None:
        """Read additions to the files, at most every half poll."""
        if time.monotonic() - self._looked >= self._poll_s / 2:
            self._version += self.reader.read()
            self._looked = time.monotonic()

    def server_close(self) -> None:
        self.closed = True
        super().server_close()
        self.store.close()


class _Handler(BaseHTTPRequestHandler):
    """Answers with the page, its updates, an episode, the pictures of one part of it, or search results."""

    server: ViewServer
    protocol_version = "HTTP/1.1"
    server_version = "agentic-video"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        if self.server.closed:  # on a connection that the page has kept
            self.close_connection = True
            return
        # Another name for this address is a page elsewhere that wants to read what is served here (DNS rebinding).
        if not OWN_NAME.fullmatch(self.headers.get("Host", "")):
            self._send(403, "text/plain", b"open http://127.0.0.1 or http://localhost with this port instead\n")
            return
        try:
            url = urlsplit(self.path)
        except ValueError:  # a broken address in brackets
            url = urlsplit("/none")
        routes: dict[str, Callable[..., Any]] = {
            r"/api/episode/(\d{1,9})": self._episode,
            r"/api/pictures/(\d{1,9})/(\d{1,4})": self._pictures,
            r"/api/search": lambda: self._search(url.query),
            r"/api/news": lambda: self._news(url.query),
        }
        if url.path == "/":
            self._send(200, "text/html; charset=utf-8", self.server.page())
            return
        for pattern, answer in routes.items():
            if match := re.fullmatch(pattern, url.path):
                try:
                    value = answer(*(int(number) for number in match.groups()))
                except (IndexError, ValueError):
                    break
                self._send(200, "application/json", to_json(value).encode("ascii"))
                return
        self._send(404, "text/plain", b"there is no such thing here\n")

    def _episode(self, number: int) -> dict[str, Any]:
        return self.server.episodes.detail(number)

    def _pictures(self, number: int, block: int) -> dict[str, Any]:
        """Pictures of the frames of one part of an episode: 0 the opening, k after turn k."""
        parts = all_parts(self.server.episodes.detail(number))[block]
        keys = [key_in(part) for part in parts if isinstance(part, list)]
        return asdict(make_strip(self.server.store, self.server.episodes.video(number), keys, self.server.side))

    def _search(self, query: str) -> list[int]:
        text = parse_qs(query).get("q", [""])[0]
        with self.server.searching:
            return self.server.episodes.search(text)

    def _news(self, query: str) -> dict[str, Any]:
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        have, have_questions = (min(10**9, int(asked.get(name, "0")[:12])) for name in ("episodes", "questions"))
        return self.server.news(asked.get("version", ""), max(0, have), max(0, have_questions))

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
