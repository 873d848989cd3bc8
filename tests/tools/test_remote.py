"""A tool behind HTTP, against a real local server that misbehaves."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentic_video.config.typed import ConfigError, dataclass_from
from agentic_video.graders.endpoint import EndpointError
from agentic_video.tools.remote import RemoteConfig, RemoteReply, RemoteTool
from tests.faulty_server import FaultyServer, Reply, Script

Serve = Callable[[Script], FaultyServer]


def says(**reply: Any) -> Reply:
    return Reply(body=json.dumps(reply).encode())


def call(server: FaultyServer, **config: Any) -> RemoteReply:
    settings = {"url": f"http://{server.address}", "retry_wait": 0.01, "timeout": 5.0, **config}
    tool = RemoteTool(RemoteConfig(**settings))
    return asyncio.run(tool.call({"query": "who?"}, "/videos/a.mp4", 30.0))


def test_a_text_and_times(serve: Serve) -> None:
    server = serve(lambda body, number: says(text="a dog", times=[3, 4.5], more="ignored"))
    assert call(server, name="finder") == RemoteReply("a dog", (3.0, 4.5))
    assert server.bodies == [
        {"model": "finder", "arguments": {"query": "who?"}, "video": "/videos/a.mp4", "duration": 30.0}
    ]
    assert server.paths == {"/call"}
    assert call(serve(lambda body, number: says(text=""))) == RemoteReply("")


def test_what_is_too_long_is_cut_and_what_lies_outside_left_out(serve: Serve) -> None:
    server = serve(lambda body, number: says(text="x" * 50, times=[-1, 30.5, 10**400, 1, 2, 3]))
    assert call(server, max_chars=10, max_times=2) == RemoteReply("x" * 10 + "...", (1.0, 2.0))
    assert call(server, max_times=0).times == ()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"not json", "after 2 tries"),
        (b"[]", "the reply is no "),
        (b'{"text": 7}', "the reply is no "),
        (b'{"text": "x", "times": "3"}', "times must be a list of numbers"),
        (b'{"text": "x", "times": [true]}', "times must be"),
        (b'{"text": "x", "times": [NaN]}', "times must be"),
        (b'{"text": "\\ud800"}', "half of a surrogate pair"),
        (b"[" * 100_000, "after 2 tries"),
    ],
)
def test_a_reply_that_is_none_is_asked_for_again_and_given_up(body: bytes, message: str, serve: Serve) -> None:
    server = serve(lambda asked, number: Reply(body=body))
    with pytest.raises(EndpointError, match=message):
        call(server)
    assert len(server.bodies) == 2


def test_a_service_that_fails_once(serve: Serve) -> None:
    server = serve(lambda body, number: Reply(status=500) if number == 0 else says(text="late"))
    assert call(server).text == "late"
    refusing = serve(lambda body, number: Reply(status=404))
    with pytest.raises(EndpointError, match="after 1 tries"):
        call(refusing)


def test_a_service_that_hangs_up_hangs_or_floods(serve: Serve) -> None:
    with pytest.raises(EndpointError, match="after 2 tries"):
        call(serve(lambda body, number: Reply(hang_up=True)))
    with pytest.raises(EndpointError, match="larger than 1000 bytes"):
        call(serve(lambda body, number: says(text="x" * 2000)), max_reply_bytes=1000)
    forever = threading.Event()

    def hang(body: Any, number: int) -> Reply:
        forever.wait()
        return says(text="too late")

    try:
        with pytest.raises(EndpointError, match="after 1 tries"):
            call(serve(hang), timeout=0.2, max_retries=0)
    finally:
        forever.set()


def test_the_key_is_in_no_message(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_TOOL", "sesame-open-now")
    server = serve(lambda body, number: Reply(status=400, body=b'{"error": {"message": "bad key sesame-open-now"}}'))
    with caplog.at_level(logging.WARNING), pytest.raises(EndpointError) as caught:
        call(server, api_key_env="MY_TOOL")
    assert "sesame" not in str(caught.value) and "sesame" not in caplog.text and "bad key" in caplog.text


@pytest.mark.parametrize(
    "config", [{"url": "host:9000"}, *({"url": "http://h", key: 0} for key in ("timeout", "concurrency", "max_chars"))]
)
def test_a_config_that_cannot_work_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        dataclass_from(RemoteConfig, config, "service")
