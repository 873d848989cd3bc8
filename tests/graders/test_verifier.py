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
    ask(server.url, [])
    assert server.bodies[1]["messages"][0]["content"] == [text]


def test_a_fault_is_the_verifier_s(serve: Serve) -> None:
    server = serve(lambda body, number: Reply("  \n"))
    with pytest.raises(VerifierError):
        ask(server.url, max_retries=1)
    assert len(server.bodies) == 2
