"""Frames behind a real `vllm serve`: which of them its model sees, and when they are."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoProcessor

from agentic_video.evaluation.backends.vllm_server import GENERATE, VllmServerBackend
from agentic_video.evaluation.model import ModelSpec
from agentic_video.graders.endpoint import Endpoint
from agentic_video.rollout.chat_policy import ChatConfig, ChatPolicy
from agentic_video.rollout.engine import GenerationRequest
from agentic_video.rollout.tokens import ChatFormat, TokenLimits
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.videoo3.system import VideoO3
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.tools.base import Video
from agentic_video.tools.ground_segment import GroundRequest
from agentic_video.toyworld.model import load_checkpoint
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Visual, visuals_of
from agentic_video.types.row import VideoQA
from tests.conftest import MemorySource
from tests.e2e.vision import AHEAD, expected
from tests.e2e.vllm_engine import vllm_server
from tests.toyworld.conftest import any_checkpoint, tokenizer
from tests.training.test_engine_images import image

__all__ = ["any_checkpoint", "tokenizer"]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
SAID = "so far"
"""The first turn, whose ids are the same however it is tokenized."""


@pytest.fixture(scope="module")
def served(any_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """An untrained model's server, of each family, and its checkpoint."""
    with vllm_server(any_checkpoint, tmp_path_factory.mktemp("vllm") / "log.txt", max_model_len=4096) as address:
        yield address, any_checkpoint


def heard(endpoint: Endpoint, path: str, ask: dict[str, Any]) -> list[Any]:
    """The replies that an endpoint gets from now on, asked for more than its caller asks."""
    replies: list[Any] = []
    post = endpoint.post

    async def listening(to: str, body: Any, read: Callable[[Any], Any]) -> Any:
        if to != path:
            return await post(to, body, read)
        asked = {**body, "sampling_params": {**body["sampling_params"], **ask}} if path == GENERATE else {**body, **ask}
        return await post(to, asked, lambda reply: replies.append(reply) or read(reply))

    endpoint.post = listening  # type: ignore[assignment,method-assign]
    return replies


def chat(address: str, system: Any) -> tuple[ChatPolicy, list[Any]]:
    """A policy of a server that is asked greedily, by exact pictures; and its replies."""
    config = ChatConfig(base_url=address, model="tiny", temperature=0.0, image_format="png", max_tokens=6)
    endpoint = Endpoint(config, "model")
    replies = heard(endpoint, "/chat/completions", {"logprobs": True, "return_token_ids": True, "ignore_eos": True})
    return ChatPolicy(endpoint, config, system, TokenLimits(2000, 2000, 6)), replies


def frames(*numbers: int) -> list[Frame]:
    return [Frame(number, float(number), image(number)) for number in numbers]


def test_a_later_turn_s_other_frame_is_seen(served: tuple[str, Path]) -> None:
    """By token ids and by messages: the ids are the same, the log-probabilities are transformers' for each frame."""
    address, checkpoint = served
    model, _ = load_checkpoint(checkpoint)
    processor = AutoProcessor.from_pretrained(checkpoint)
    chat_format = ChatFormat.of(processor)
    said = chat_format.encode(SAID)
    view: Any = None

    async def by_ids(first: Frame, later: Frame) -> tuple[list[int], list[int], list[float]]:
        opening = chat_format.opening_ids([Message("user", ("look ", first, " what is it?"))])
        ids = [*opening, *said, *chat_format.observation_ids((" and now ", later, " say more"), said)]
        spec = ModelSpec(
            "vllm-server", address, processor=str(checkpoint), chat=ChatConfig(base_url=address, model="tiny")
        )
        backend = VllmServerBackend(spec, 28)
        replies = heard(backend._server, GENERATE, {"logprobs": 1, "ignore_eos": True})
        policy: Any = backend.policy(VideoZoomer(), TokenLimits(500, 500, 6))
        request = GenerationRequest(ids, [first, later], stop=(), max_tokens=6, banned_ids=())
        completion = await policy._engine.generate(request)
        (choice,) = replies[-1]["choices"]
        return ids, list(completion.token_ids), [each["logprob"] for each in choice["logprobs"]["content"]]

    async def by_messages(first: Frame, later: Frame) -> tuple[list[int], list[int], list[float]]:
        policy, replies = chat(address, VideoZoomer(stop=()))
        await policy.begin([Message("user", ("look ", first, " what is it?"))])
        policy.rewrite(policy.num_messages, SAID)
        await policy.show((" and now ", later, " say more"))
        await policy.say(view)
        (choice,) = replies[-1]["choices"]
        return (
            list(replies[-1]["prompt_token_ids"]),
            list(choice["token_ids"]),
            [each["logprob"] for each in choice["logprobs"]["content"]],
        )

    for ask in (by_ids, by_messages):
        told = [asyncio.run(ask(*frames(*numbers))) for numbers in ((0, 1), (0, 2), (0, 1))]
        assert told[0] == told[2] and told[0][0] == told[1][0], ask.__name__
        for numbers, (ids, answer, log_probs) in zip(((0, 1), (0, 2)), told[:2], strict=True):
            assert log_probs == pytest.approx(expected(model, processor, ids, numbers, answer), abs=1e-3)
        ids, answer, log_probs = told[1]
        assert abs(log_probs[0] - expected(model, processor, ids, (0, 1), answer)[0]) > AHEAD, ask.__name__
    assert asyncio.run(by_ids(*frames(0, 1)))[0] == told[0][0]


class Shades(MemorySource):
    """Frames that differ, 10 a second for 12 seconds."""

    def draw(self, path: str, indices: Any, size: Any) -> list[Frame]:
        self.requested += len(indices)
        width, height = size
        shade = np.linspace(0, 255, width, dtype=np.uint8)
        return [
            Frame(index, index / 10, np.broadcast_to(shade[None, :, None], (height, width, 3)) // (1 + index % 7))
            for index in indices
        ]


@pytest.mark.parametrize("frames_as", ["images", "video"])
def test_video_o3_s_frames_keep_their_times(frames_as: Any, served: tuple[str, Path]) -> None:
    """Its opening and one look: as images the server's prompt is that of the engine in this process, id by id; a clip's
    frames become images, each after its time."""
    address, checkpoint = served
    chat_format = ChatFormat.of(AutoProcessor.from_pretrained(checkpoint))
    if frames_as == "video" and not chat_format.rules.takes_clips:
        pytest.skip("the family has no clips")
    side = round(chat_format.image_tokens(56, 56) ** 0.5)
    system = VideoO3(
        frames_as=frames_as,
        overview_max_frames=6,
        overview_tokens=24,
        crop_max_frames=4,
        frame_min_tokens=1,
        frame_max_tokens=4 if chat_format.rules.kept(56, 56) == (56, 56) else 1,  # the server would cut a larger one
        size_factor=56 // side if side > 1 else 28,
        stop=(),
    )
    qa = VideoQA("1", "memory", "What happens?", "A", options=("a", "b"))
    source = Shades(duration=12.0)

    async def run() -> tuple[list[Any], list[list[int]], list[Visual]]:
        view = EpisodeView(qa, await Video.open(qa.video, source))
        opening = await system.opening(view)
        look = await system.look(GroundRequest(2.0, 8.0, "medium"), view.video)
        seen = ("Observation 1, the segment that you asked for:\n", *system.described(look, 2.0, 8.0, frames_as))
        policy, replies = chat(address, system)
        await policy.begin(opening)
        await policy.say(view)
        policy.rewrite(policy.num_messages - 1, SAID)
        await policy.show(seen)
        await policy.say(view)
        ids = chat_format.opening_ids(opening)
        said = chat_format.encode(SAID)
        whole = [*ids, *said, *chat_format.observation_ids(seen, said)]
        shown = [*(part for message in opening for part in visuals_of(message.parts)), *visuals_of(seen)]
        return replies, [ids, whole], shown

    replies, ids, shown = asyncio.run(run())
    served_ids = [list(reply["prompt_token_ids"]) for reply in replies]
    if frames_as == "images":
        assert served_ids == ids
        assert all(isinstance(frame, Frame) for frame in shown) and len(shown) == 10
    else:
        text = chat_format.decode(served_ids[1])
        times = [frame.time for clip in shown for frame in clip.frames]  # type: ignore[union-attr]
        assert [text.count(f"<{time:.1f} seconds>") > 0 for time in times] == [True] * 10
        places = [text.index(f"<{time:.1f} seconds>") for time in times[:6]]
        assert places == sorted(places)
