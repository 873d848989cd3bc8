import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentic_video.report.viewer.server import ViewServer
from agentic_video.report.viewer.sources import EpisodeReader
from agentic_video.types.record import write_record
from tests.report.viewer.records import record, write
from tests.video.conftest import video  # noqa: F401  (a fixture)

Ask = Callable[..., tuple[http.client.HTTPResponse, bytes]]


@pytest.fixture
def server(tmp_path: Path, video: Callable[[str], str]) -> Iterator[ViewServer]:  # noqa: F811
    path = video("h264_b_frames")
    file = write(
        tmp_path / "e.jsonl",
        record(path, thought="</script>"),
        record("/gone.mp4", id="q2"),
        record("/etc/passwd", id="q3"),
    )
    serving = ViewServer(read([file]), "title", 0, 96, poll_s=0.0)
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield serving
    serving.shutdown()
    serving.server_close()
    thread.join()


@pytest.fixture
def ask(server: ViewServer) -> Ask:
    def get(path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        return reply, reply.read()

    return get


def read(paths: list[Path]) -> EpisodeReader:
    reader = EpisodeReader(paths)
    reader.read()
    return reader


def value(answer: tuple[http.client.HTTPResponse, bytes]) -> Any:
    assert answer[0].status == 200
    return json.loads(answer[1])


def test_only_this_machine_is_served(server: ViewServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_page_and_its_headers(ask: Ask) -> None:
    reply, body = ask("/")
    assert reply.status == 200 and b'"mode":"server"' in body
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in reply.headers


def test_episode_search_and_pictures(ask: Ask) -> None:
    assert value(ask("/api/episode/0"))["turns"][0]["text"] == "</script>"
    assert value(ask("/api/search?q=LOOK+near")) == [1, 2]
    assert value(ask("/api/search?q=%3C%2Fscript")) == [0]
    overview, observed = value(ask("/api/pictures/0/0")), value(ask("/api/pictures/0/1"))
    assert sorted(overview["pictures"]) == ["0", "25"] and sorted(observed["pictures"]) == ["30", "40"]
    assert value(ask("/api/pictures/0/2"))["pictures"] == {}
    assert value(ask("/api/pictures/1/0"))["error"] == "the video isn't there"
    passwd = value(ask("/api/pictures/2/0"))
    assert passwd["error"] and passwd["pictures"] == {}


@pytest.mark.parametrize(
    "path",
    [
        "/x",
        "/api/episode/3",
        "/api/episode/-1",
        "/api/episode/x",
        "/api/pictures/0/9",
        "/../../etc/passwd",
        "//etc/passwd",
        "/api/episode/" + "9" * 400,
        "/%2e%2e/",
        "/api/pictures/0/0/etc/passwd",
        "/api/news?episodes=x",
        "/api/news?questions=1e3",
    ],
)
def test_there_is_nothing_else(ask: Ask, path: str) -> None:
    assert ask(path)[0].status == 404


@pytest.mark.parametrize("path", ["http://[/", "//[", "http://[::1/", "/%00", "/api/episode/" + "9" * 500, "*"])
def test_an_address_that_is_none(server: ViewServer, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    assert connection.getresponse().status == 404


def test_another_name_for_this_machine_is_refused(ask: Ask, server: ViewServer) -> None:
    port = server.server_port
    for name in (
        f"evil.example:{port}",
        "evil.example",
        f"127.0.0.1.evil.example:{port}",
        f"localhost:{port}x",
        "",
        "::1",
    ):
        assert ask("/", Host=name)[0].status == 403
    assert ask("/api/episode/0", Host=f"evil.example:{port}")[0].status == 403
    assert ask("/", Host=f"localhost:{port}")[0].status == 200


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:9000", "LOCALHOST:9000", "[::1]:9000", "localhost"])
def test_the_other_end_of_a_tunnel_has_a_port_of_its_own(ask: Ask, host: str) -> None:
    assert ask("/", Host=host)[0].status == 200


def test_nothing_can_be_written(ask: Ask) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert ask("/api/episode/0", method)[0].status == 501


def test_what_is_new_is_told_once(ask: Ask, server: ViewServer, tmp_path: Path) -> None:
    def news(version: str, episodes: int, questions: int) -> Any:
        return value(ask(f"/api/news?version={version}&episodes={episodes}&questions={questions}"))

    version = news("", 0, 0)["version"]
    assert news(version, 3, 3) == {"version": version}
    # a page of an earlier server gets nothing that it could take for its own
    assert news("other-0", 0, 0) == {"version": version}
    with (tmp_path / "e.jsonl").open("a", encoding="utf-8") as file:
        write_record(file, record("/gone.mp4", id="q2", rollout=1, reward=0.0, provenance={"x": "</script>"}))
        write_record(file, record("/new.mp4", id="q4"))
        file.write('{"version')
    found = news(version, 3, 3)
    assert found["version"] != version and news(found["version"], 5, 4) == {"version": found["version"]}
    assert found["columns"]["rollout"] == [1, 0] and found["columns"]["question"] == [1, 3]
    assert [question[0] for question in found["questions"]] == ["q4"]
    # the rollout that was alone has a second one now: mean 0.5, standard deviation sqrt(0.5)
    assert found["advantages"] == [[1, pytest.approx(0.5**0.5, abs=1e-5)]]
    assert found["problems"]["total"] == 1
    assert value(ask("/api/episode/4"))["turns"][0]["text"] == "look near 1"
    # negative, huge: as if all or none were there
    assert len(news(version, -5, -5)["columns"]["step"]) == 5
    assert news(version, 10**11, 10**11)["columns"]["step"] == []
    reply, body = ask("/")
    assert reply.status == 200 and body.count(b"</script>") == 2 and found["version"].encode() in body
