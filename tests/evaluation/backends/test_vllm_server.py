"""The client of vLLM's token interface, against a server that misbehaves; the real one is in tests/e2e."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from agentic_video.evaluation.backends.vllm_server import GENERATE, RENDER, VllmServerBackend, root_of
from agentic_video.evaluation.model import ModelOptions, ModelSpec, model_spec
from agentic_video.rollout.chat_policy import ChatConfig
from agentic_video.rollout.engine import Completion, GenerationRequest
from agentic_video.rollout.policy import EngineError
from agentic_video.types.frame import Clip, Frame
from agentic_video.utils.errors import SetupError
from tests.evaluation.conftest import checkpoint, tokenizer
from tests.faulty_server import Reply, Serve, answering

__all__ = ["checkpoint", "tokenizer"]

SIDE = 56
"""Of a frame in pixels."""


@pytest.mark.parametrize("address", ["http://h:8000/v1", "http://h:8000/v1/", "http://h:8000"])
def test_the_root_of_an_address(address: str) -> None:
    assert root_of(address) == "http://h:8000"


def rendered(tokens: int, name: str = "n") -> Reply:
    features = {
        "mm_hashes": {"image": [name]},
        "mm_placeholders": {"image": [{"offset": 3, "length": tokens}]},
        "kwargs_data": {"image": ["UFg="]},
    }
    return Reply(body=json.dumps({"token_ids": [1], "features": features}).encode())


def generated(ids: Any) -> Reply:
    return Reply(body=json.dumps({"choices": [{"index": 0, "token_ids": ids}]}).encode())


def frame(shade: int) -> Frame:
    return Frame(0, 0.0, np.full((SIDE, SIDE, 3), shade, dtype=np.uint8))


def play(checkpoint: Path, url: str, shown: list[Any], rounds: int = 1, seed: int | None = 5) -> list[Completion]:
    """Ask for some turns with the same frames."""

    async def ask() -> list[Completion]:
        chat = ChatConfig(base_url=url, model="m", max_retries=1, retry_wait=0.01)
        spec = ModelSpec("vllm-server", url, 0.5, 0.9, 5, chat=chat, processor=str(checkpoint))
        backend = VllmServerBackend(spec, 0)
        chat_format = backend._format
        each = chat_format.image_tokens(SIDE, SIDE)
        ids = [1]
        for _ in shown:
            ids += [2, *[chat_format.image_token_id] * each, 3]
        from agentic_video.evaluation.backends.vllm_server import _ServerEngine

        engine = _ServerEngine(backend._server, backend._pictures, chat_format, spec, iter([seed] * rounds))
        request = GenerationRequest(ids, shown, ("</stop>",), 7, (4, 5), (9, 8))
        return [await engine.generate(request) for _ in range(rounds)]

    return asyncio.run(ask())


def tokens_of(checkpoint: Path) -> int:
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(checkpoint).image_processor
    return int(processor.get_number_of_image_patches(SIDE, SIDE, {})) // processor.merge_size**2


def test_ids_go_there_and_ids_come_back(serve: Serve, checkpoint: Path) -> None:
    each = tokens_of(checkpoint)

    def says(body: dict[str, Any], number: int) -> Reply:
        return rendered(each, f"n{number}") if "messages" in body else generated([7, 8, 9])

    server = serve(says)
    first, second = play(checkpoint, server.url, [frame(10), frame(200)], rounds=2)
    assert first.token_ids == second.token_ids == (7, 8, 9)
    assert server.paths == {RENDER, GENERATE}
    renders = [body for body in server.bodies if "messages" in body]
    assert len(renders) == 2, "each frame is processed once, however many turns show it"
    assert renders[0]["messages"][0]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
    turns = [body for body in server.bodies if "token_ids" in body]
    assert len(turns) == 2 and turns[0] == turns[1]
    asked = turns[0]
    assert asked["model"] == "m"
    assert asked["features"] == {
        "mm_hashes": {"image": ["n0", "n1"]},
        "mm_placeholders": {"image": [{"offset": 2, "length": each}, {"offset": each + 4, "length": each}]},
        "kwargs_data": {"image": ["UFg=", "UFg="]},
    }
    assert asked["sampling_params"] == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "stop": ["</stop>"],
        "stop_token_ids": [8, 9],
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "logit_bias": {"4": -100.0, "5": -100.0},
        "seed": 5,
    }


def test_without_frames_and_without_a_seed(serve: Serve, checkpoint: Path) -> None:
    server = serve(lambda body, number: generated([]))
    assert play(checkpoint, server.url, [], seed=None)[0].token_ids == ()
    (asked,) = server.bodies
    assert "features" not in asked and "seed" not in asked["sampling_params"]


@pytest.mark.parametrize(
    "reply",
    [
        generated(None),
        generated("abc"),
        generated([1, "2"]),
        generated([True]),
        generated([-1]),
        generated([2**40]),
        generated(list(range(8))),
        Reply(body=b"[]"),
        Reply(body=b"{}"),
        Reply(body=b'{"choices": []}'),
        Reply(status=404),
        Reply(status=500),
        Reply(hang_up=True),
    ],
)
def test_what_is_no_list_of_ids_ends_the_question(reply: Reply, serve: Serve, checkpoint: Path) -> None:
    server = serve(lambda body, number: reply)
    with pytest.raises(EngineError, match="no verdict from"):
        play(checkpoint, server.url, [])
    assert len(server.bodies) <= 2


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"features": null}', b'{"features": {"mm_hashes": {"image": []}}}'])
def test_a_server_that_processes_no_image(body: bytes, serve: Serve, checkpoint: Path) -> None:
    server = serve(lambda asked, number: Reply(body=body))
    with pytest.raises(EngineError, match="no processed image"):
        play(checkpoint, server.url, [frame(1)])


def test_a_server_that_resizes_is_refused(serve: Serve, checkpoint: Path) -> None:
    server = serve(lambda body, number: rendered(999))
    with pytest.raises(EngineError, match="makes 999 tokens of a frame of 56x56"):
        play(checkpoint, server.url, [frame(1)])


def test_clips_are_refused(serve: Serve, checkpoint: Path) -> None:
    clip = Clip((frame(1), Frame(1, 0.5, frame(2).image)))
    with pytest.raises(EngineError, match="frames_as"):
        play(checkpoint, serve(lambda body, number: generated([])).url, [clip])


@pytest.mark.parametrize(
    ("entries", "named", "processor"),
    [
        ([{"id": "m", "root": "/models/m"}], "", "/models/m"),
        ([{"id": "m", "root": "/models/m"}, {"id": "n", "root": "/models/n"}], "n", "/models/n"),
        ([{"id": "m"}], "", None),
        ([{"id": "m", "root": None}, 3], "", None),
    ],
)
def test_the_processor_is_what_the_server_loaded(entries: list[Any], named: str, processor: str | None) -> None:
    values = {"do_sample": False, "temperature": 0.0, "top_p": 1.0}
    config = OmegaConf.create(
        {"actor_rollout_ref": {"rollout": {"val_kwargs": values}}, "agentic_video": {"max_turn_tokens": 9}}
    )
    with answering(200, json.dumps({"data": entries}).encode()) as url:
        options = ModelOptions(url, "vllm-server", model_name=named)
        if processor is None:
            with pytest.raises(SetupError) as caught:
                model_spec(options, config)
            assert caught.value.key in ("--processor", "--model")
        else:
            assert model_spec(options, config).processor == processor
