"""The verifier against a real server: frames in order before the prompt, the judge's bounds on time and retries."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agentic_video.graders.verifier import Verifier, VerifierConfig, VerifierError
from agentic_video.types.frame import Frame
from tests.faulty_server import FaultyServer, Reply, Script
from tests.graders.pictures import picture

Serve = Callable[[Script], FaultyServer]
FRAMES = [Frame(i, i / 10, np.full((28, 56, 3), 50 * i, np.uint8)) for i in range(4)]


def ask(url: str, frames: list[Frame] = FRAMES, **config: Any) -> str:
    settings = {"base_url": url, "model": "m", "retry_wait": 0.01, "timeout": 5.0, **config}
    return asyncio.run(Verifier(VerifierConfig(**settings)).ask("What is it?", frames))


@pytest.mark.parametrize("image_format", ["png", "jpeg"])
def test_frames_in_order_then_the_prompt(serve: Serve, image_format: str) -> None:
    server = serve(lambda body, number: Reply(" B \n"))
    assert ask(server.url, image_format=image_format) == "B"
    (message,) = server.bodies[0]["messages"]
    *images, text = message["content"]
    assert (message["role"], text) == ("user", {"type": "text", "text": "What is it?"})
    urls = [image["image_url"]["url"] for image in images]
    assert all(url.startswith(f"data:image/{image_format};base64,") for url in urls)
    for number, url in enumerate(urls):
        shown = picture(url)
        assert shown.shape == (28, 56, 3)
        assert abs(int(shown.mean()) - 50 * number) <= 1
    assert (server.bodies[0]["model"], server.bodies[0]["max_tokens"]) == ("m", 256)


def test_without_frames_only_the_prompt_is_sent(serve: Serve) -> None:
    server = serve(lambda body, number: Reply("B"))
    ask(server.url, [])
    assert server.bodies[0]["messages"][0]["content"] == [{"type": "text", "text": "What is it?"}]


@pytest.mark.parametrize(
    "fault",
    [
        Reply(status=429),
        Reply(status=500),
        Reply(""),
        Reply("  \n"),
        Reply(None),
        Reply(hang_up=True),
        Reply(body=b"{"),
    ],
)
def test_faults_are_retried_a_bounded_number_of_times(serve: Serve, fault: Reply) -> None:
    server = serve(lambda body, number: fault if number < 3 else Reply("B"))
    assert ask(server.url) == "B"
    server = serve(lambda body, number: fault)
    with pytest.raises(VerifierError, match=r"verifier: .* 4 tries"):
        ask(server.url)
    assert len(server.bodies) == 4


@pytest.mark.parametrize(("key", "value"), [("image_quality", 0), ("concurrency", 0)])
def test_a_config_that_makes_no_sense_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=key):
        VerifierConfig(**{key: value})
