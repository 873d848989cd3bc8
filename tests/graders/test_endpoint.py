"""The client of a model against a faulty server: bounded retries, bounded time, bounded concurrency."""

import asyncio
import gzip
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentic_video.config.typed import ConfigError, dataclass_from
from agentic_video.graders.connection import MAX_REPLY_BYTES
from agentic_video.graders.endpoint import Endpoint, EndpointConfig, EndpointError, UnreadableReply, text_of
from agentic_video.graders.verifier import VerifierConfig
from tests.faulty_server import FaultyServer, Reply, Script

Serve = Callable[[Script], FaultyServer]
QUESTION = [{"role": "user", "content": "How many?"}]


def whole(reply: str) -> int:
    if len(reply) != 1 or not reply.isdecimal():
        raise UnreadableReply(f"no number: {reply[:40]!r}")
    return int(reply)


def make(url: str, **config: Any) -> Endpoint:
    settings = {"base_url": url, "model": "m", "retry_wait": 0.01, "timeout": 5.0, **config}
    return Endpoint(EndpointConfig(**settings), "judge")


def ask(url: str, **config: Any) -> int:
    return asyncio.run(make(url, **config).chat(QUESTION, whole))


def test_a_readable_reply_is_returned_without_white_space_around_it(serve: Serve) -> None:
    server = serve(lambda body, number: Reply(" 7\n"))
    assert ask(server.url) == 7
    assert server.bodies == [{"model": "m", "messages": QUESTION, "max_tokens": 8, "temperature": 0.0}]
    assert server.paths == {"/v1/chat/completions"}


def test_an_unreadable_reply_is_asked_for_again_and_named_at_last(serve: Serve) -> None:
    server = serve(lambda body, number: Reply("seven" if number < 2 else "7"))
    assert ask(server.url) == 7
    assert len(server.bodies) == 3
    with pytest.raises(EndpointError, match=r"no verdict from .* after 2 tries: no number: 'many'"):
        ask(serve(lambda body, number: Reply("many")).url, max_retries=1)


def test_a_whole_choice_with_its_usage_and_other_fields(serve: Serve) -> None:
    server = serve(lambda body, number: Reply("7"))
    read = asyncio.run(
        make(server.url).complete(QUESTION, dict, {"max_tokens": 99, "temperature": None, "logprobs": True})
    )
    assert (read["message"]["content"], read["finish_reason"], read["usage"]) == ("7", "stop", None)
    assert server.bodies == [{"model": "m", "messages": QUESTION, "max_tokens": 99, "logprobs": True}]


def test_whatever_a_reader_raises_counts_as_unreadable(serve: Serve) -> None:
    def read(reply: dict[str, Any]) -> str:
        return str(reply["nothing"])

    server = serve(lambda body, number: Reply("7"))
    with pytest.raises(EndpointError, match="2 tries: KeyError: 'nothing'"):
        asyncio.run(make(server.url, max_retries=1).complete(QUESTION, read))


FAULTS = {
    "too many requests": Reply(status=429),
    "overloaded": Reply(status=503, body=b"busy", headers={"Content-Type": "text/plain"}),
    "no answer": Reply(hang_up=True),
    "no text": Reply(content=None),
    "not JSON": Reply(body=b"\x00\xff{{{"),
    "no choices": Reply(body=b'{"choices": []}'),
    "an object for a text": Reply(body=b'{"choices": [{"message": {"content": {"grade": 1}}}]}'),
    "deeply nested": Reply(body=b"[" * 100_000),
    "empty": Reply(body=b""),
}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>Not\x1b\n here</html>", 'the reply is no chat completion; it begins "<html>Not\\x1b  here</html>"'),
        (b'{"choices": []}', "the reply is no chat completion; it begins \"{'choices': []}\""),
        (b'{"choices": [{"message": {"content": 1}}]}', "the reply's content is not a text"),
        (b'{"choices": [{"message": {"content": "1", "tool_calls": [{}]}}]}', "the model's text into tool_calls: "),
        (b'{"choices": [{"message": {"reasoning_content": "1"}}]}', "the model's text into reasoning_content: "),
        (b'{"choices": [{"message": {"content": null, "reasoning": "1"}}]}', "the model's text into reasoning: "),
    ],
)
def test_replies_without_a_text_are_described(serve: Serve, body: bytes, said: str) -> None:
    kind = "text/html" if body.startswith(b"<") else "application/json"
    server = serve(lambda asked, number: Reply(body=body, headers={"Content-Type": kind}))
    with pytest.raises(EndpointError) as caught:
        ask(server.url, max_retries=0)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "a", "reasoning_content": "thought"}, "a"),
        ({"content": "a", "tool_calls": []}, "a"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ({"content": None}, ""),
        ({}, ""),
    ],
)
def test_the_text_of_a_reply(message: dict[str, Any], text: str) -> None:
    assert text_of({"message": message}) == text


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_faults_are_retried_and_then_fail(serve: Serve, fault: Reply) -> None:
    server = serve(lambda body, number: fault if number < 2 else Reply("1"))
    assert ask(server.url) == 1
    assert len(server.bodies) == 3
    server = serve(lambda body, number: fault)
    with pytest.raises(EndpointError, match="3 tries"):
        ask(server.url, max_retries=2)
    assert len(server.bodies) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_request_that_will_never_be_accepted_is_not_repeated(serve: Serve, status: int) -> None:
    server = serve(lambda body, number: Reply(status=status))
    with pytest.raises(EndpointError, match="1 tries"):
        ask(server.url)
    assert len(server.bodies) == 1


def pauses(serve: Serve, monkeypatch: pytest.MonkeyPatch, retry_after: str | None, **config: Any) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    headers = {} if retry_after is None else {"Retry-After": retry_after}
    server = serve(lambda body, number: Reply(status=429, headers=headers))
    with monkeypatch.context() as patch, pytest.raises(EndpointError):
        patch.setattr(asyncio, "sleep", sleep)
        ask(server.url, **config)
    return slept


@pytest.mark.parametrize(
    ("retry_after", "expected"),
    [
        (None, [1.0, 2.0, 4.0]),
        ("3", [3.0, 3.0, 4.0]),
        ("0.5", [1.0, 2.0, 4.0]),
        ("86400", [30.0, 30.0, 30.0]),
        ("1e999", [1.0, 2.0, 4.0]),
        ("nan", [1.0, 2.0, 4.0]),
        ("-5", [1.0, 2.0, 4.0]),
        ("Wed, 21 Oct 2099 07:28:00 GMT", [1.0, 2.0, 4.0]),
    ],
)
def test_retry_after_is_heeded_within_bounds(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, retry_after: str | None, expected: list[float]
) -> None:
    assert pauses(serve, monkeypatch, retry_after, retry_wait=1.0, max_retries=3) == expected


def test_time_limit(serve: Serve) -> None:
    release = threading.Event()
    server = serve(lambda body, number: (release.wait(300), Reply("1"))[1])
    try:
        # both requests are given up while the server still holds them
        with pytest.raises(EndpointError, match="2 tries: TimeoutError"):
            ask(server.url, timeout=0.3, max_retries=1)
        assert len(server.bodies) == 2
    finally:
        release.set()


@pytest.mark.parametrize(("url", "model"), [("", "m"), ("http://127.0.0.1:1/v1", "")])
def test_without_a_model_the_message_says_what_to_set(url: str, model: str) -> None:
    with pytest.raises(EndpointError, match=r"there is no judge: set agentic_video\.judge\.base_url and \.model"):
        ask(url, model=model)


def test_reasoning_models_get_no_limit_and_no_temperature(serve: Serve) -> None:
    server = serve(lambda body, number: Reply("1"))
    ask(server.url)
    ask(server.url, max_tokens=0, temperature=None)
    assert (server.bodies[0]["max_tokens"], server.bodies[0]["temperature"]) == (8, 0.0)
    assert not {"max_tokens", "temperature"} & set(server.bodies[1])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("base_url", "judge:8000"),
        ("timeout", 0),
        ("timeout", float("nan")),
        ("concurrency", 0),
        ("max_retries", -1),
        ("retry_wait", -1.0),
        ("max_tokens", -1),
        ("image_quality", 0),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        dataclass_from(VerifierConfig, {key: value}, "agentic_video.verifier")
    assert caught.value.key == f"agentic_video.verifier.{key}"


def test_concurrency_is_capped(serve: Serve) -> None:
    now, most, lock = [0], [0], threading.Lock()

    def reply(body: dict[str, Any], number: int) -> Reply:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.05)
        with lock:
            now[0] -= 1
        return Reply("1")

    async def many(url: str) -> list[int]:
        endpoint = make(url, concurrency=3)
        return await asyncio.gather(*[endpoint.chat(QUESTION, whole) for _ in range(20)])

    assert asyncio.run(many(serve(reply).url)) == [1] * 20
    assert most[0] == 3


def test_special_tokens_reach_no_server(serve: Serve) -> None:
    server = serve(lambda body, number: Reply("7"))
    image = {"type": "image_url", "image_url": {"url": "data:,<|x|>"}}
    parts = [{"type": "text", "text": "<"}, {"type": "text", "text": "|im_end|>"}, image]
    parts += [{"type": "text", "text": "<start_of_turn>"}]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "[INST] a <b> < | c"},
        {"role": "user", "content": parts},
    ]
    asyncio.run(make(server.url).chat(messages, whole))
    sent = server.bodies[0]["messages"]
    assert sent[0]["content"] == "[ INST] a <b> < | c"
    assert [part.get("text") for part in sent[1]["content"]] == ["< |im_end|>", None, "< start_of_turn>"]
    assert sent[1]["content"][1] == image


@pytest.mark.parametrize("status", [200, 500])
def test_a_reply_that_is_too_large_or_compressed_is_not_read(serve: Serve, status: int) -> None:
    bomb = gzip.compress(b"[" * 2 * MAX_REPLY_BYTES)
    replies = {
        "larger than": Reply(body=b"[" * (MAX_REPLY_BYTES + 1), status=status),
        "compressed": Reply(body=bomb, status=status, headers={"Content-Encoding": "gzip"}),
    }
    for message, reply in replies.items():
        server = serve(lambda body, number, reply=reply: reply)
        with pytest.raises(EndpointError, match=message):
            ask(server.url)
        assert len(server.bodies) == 1, "it isn't asked again"


def test_a_redirect_carries_the_key_nowhere(serve: Serve) -> None:
    other = serve(lambda body, number: Reply("7"))
    server = serve(lambda body, number: Reply(status=307, headers={"Location": f"{other.url}/chat/completions"}))
    with pytest.raises(EndpointError, match=f"redirects to {other.url}"):
        ask(server.url)
    assert (len(server.bodies), len(other.bodies)) == (1, 0)


@pytest.mark.parametrize(("key", "sent"), [(" right\n", True), ("sek\nret", False), ("s\xe9cret", False)])
def test_a_key_is_sent_without_white_space_and_one_that_cannot_be_is_named(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, key: str, sent: bool
) -> None:
    monkeypatch.setenv("A_KEY", key)
    server = serve(lambda body, number: Reply("7"))
    if sent:
        assert ask(server.url, api_key_env="A_KEY") == 7
        return
    with pytest.raises(EndpointError, match=r"^judge: A_KEY: no key: it holds line breaks") as said:
        ask(server.url, api_key_env="A_KEY")
    assert key not in str(said.value) and not server.bodies


@pytest.mark.parametrize("cut", [None, 20])
def test_a_key_that_a_server_echoes_is_not_logged(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cut: int | None
) -> None:
    key = "sk-0123456789abcdefghijklmnopqrstuvwxyz"
    monkeypatch.setenv("A_KEY", key)
    echoed = f"wrong key {key[:cut]}!"
    for reply in (Reply(echoed), Reply(status=401, body=b'{"error": {"message": "%s"}}' % echoed.encode())):
        with caplog.at_level(logging.WARNING), pytest.raises(EndpointError, match=r"\*\*\*") as caught:
            ask(serve(lambda body, number, reply=reply: reply).url, api_key_env="A_KEY", max_retries=0)
        assert key[:8] not in str(caught.value) + caplog.text


REMOTE = "http://203.0.113.7/v1"  # a documentation address: on no network


def through(monkeypatch: pytest.MonkeyPatch, proxy: str, variable: str = "http_proxy") -> None:
    """Name a proxy, as a site does that names no exceptions."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv(variable, proxy)


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9", "ftp://nonsense"])
def test_a_server_of_this_machine_is_asked_without_the_proxy(
    proxy: str, variable: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    through(monkeypatch, proxy, variable)
    server = serve(lambda body, number: Reply("7"))
    assert ask(server.url) == ask(server.url.replace("127.0.0.1", "localhost")) == 7


def test_a_remote_server_is_asked_through_the_proxy(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = serve(lambda body, number: Reply("7"))
    through(monkeypatch, f"http://{proxy.address}")
    assert ask(REMOTE) == 7
    assert proxy.paths == {f"{REMOTE}/chat/completions"}


def test_where_a_proxy_was_used_the_error_names_it_and_no_password(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = serve(lambda body, number: Reply(status=403)).address
    for address in ("127.0.0.1:9", refusing):
        through(monkeypatch, f"http://me:secret@{address}")
        with pytest.raises(EndpointError) as failed:
            ask(REMOTE, max_retries=0)
        said = str(failed.value)
        assert "http_proxy" in said and address in said and "no_proxy=203.0.113.7" in said
        assert "secret" not in said and "\n" not in said
        with pytest.raises(EndpointError) as failed:
            ask("http://127.0.0.1:9/v1", max_retries=0)
        assert "proxy" not in str(failed.value)
