"""A model behind vLLM's server, token by token: ids go there and ids come back, as in training.

The chat interface is handed messages, which the server renders and tokenizes again. vLLM has another way in,
``/inference/v1/generate``, which takes ids and the processed pixels of their placeholders. The pixels come from
``/v1/chat/completions/render``, which processes an image as that server would, in a form of its own that is passed on
as it is. Both are in every ``vllm serve`` of 0.24.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.model import ModelSpec, turn_seeds
from agentic_video.families.base import spans
from agentic_video.families.registry import load_processor
from agentic_video.graders.endpoint import Endpoint, EndpointError, UnreadableReply
from agentic_video.graders.images import data_url
from agentic_video.rollout.engine import Completion, GenerationRequest
from agentic_video.rollout.policy import EngineError, Policy
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy
from agentic_video.systems.base import System
from agentic_video.types.frame import Clip, Frame

GENERATE = "/inference/v1/generate"
RENDER = "/v1/chat/completions/render"
MAX_REPLY_BYTES = 256 * 2**20
"""Of the pixels of one frame: a megapixel takes 14 MB at two bytes a number, and 28 MB at four."""
MAX_CACHED_BYTES = 2**30
"""Of processed frames that are kept for the next turn, and for other questions about the same video."""


class VllmServerBackend(Backend):
    """vLLM's server by its address; see :class:`Backend`. The checkpoint's processor is needed on this machine, too."""

    takes_clips: ClassVar[bool] = False

    def __init__(self, spec: ModelSpec, visual_token_side: int):
        self._format = ChatFormat.of(load_processor(spec.processor), template_kwargs=spec.template_kwargs)
        self.chat_format = self._format
        self._spec = spec
        config = replace(spec.chat, base_url=root_of(spec.model))
        self._server = Endpoint(config, "model", max_reply_bytes=MAX_REPLY_BYTES)
        self._pictures = _FrameCache(self._server, self._format)

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        engine = _ServerEngine(self._server, self._pictures, self._format, self._spec, turn_seeds(self._spec, episode))
        return TokenPolicy(engine, self._format, limits, system)


def root_of(address: str) -> str:
    """A server's address without the ``/v1`` of its OpenAI-compatible part."""
    return address.rstrip("/").removesuffix("/v1")


@dataclass(frozen=True)
class _Picture:
    """A frame as the server processed it."""

    name: str  # what the server calls it
    pixels: str  # as the server wrote them
    tokens: int  # how many it has, the ends of its placeholders included


class _FrameCache:
    """Has frames processed by the server, and keeps the latest ones."""

    def __init__(self, server: Endpoint, chat_format: ChatFormat):
        self._server, self._format = server, chat_format
        self._kept: OrderedDict[str, _Picture] = OrderedDict()
        self._bytes = 0

    async def of(self, frame: Frame) -> _Picture:
        """A frame, processed."""
        key = await asyncio.to_thread(lambda: frame.key)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        url = await asyncio.to_thread(data_url, frame, "png", 0)
        content = [{"type": "image_url", "image_url": {"url": url}}]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
        picture = await self._server.post(RENDER, body, _read_picture)
        wanted = len(self._format.image_ids(frame.width, frame.height)[1])
        if picture.tokens != wanted:
            raise EndpointError(
                f"the server makes {picture.tokens} tokens of a frame of {frame.width}x{frame.height} pixels, and the "
                f"checkpoint's processor {wanted}: serve it with its own processor, without --mm-processor-kwargs"
            )
        if key not in self._kept:  # another episode may have asked for it meanwhile
            self._kept[key] = picture
            self._bytes += len(picture.pixels)
        while self._bytes > MAX_CACHED_BYTES and len(self._kept) > 1:
            self._bytes -= len(self._kept.popitem(last=False)[1].pixels)
        return picture


def _read_picture(reply: Any) -> _Picture:
    try:
        features = reply["features"]
        (name,) = features["mm_hashes"]["image"]
        (place,) = features["mm_placeholders"]["image"]
        (pixels,) = features["kwargs_data"]["image"]
        tokens = place["length"]
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableReply(f"{RENDER} gave no processed image ({type(error).__name__}: {error})") from None
    if not (isinstance(name, str) and isinstance(pixels, str) and isinstance(tokens, int)):
        raise UnreadableReply(f"{RENDER} gave no processed image")
    return _Picture(name, pixels, tokens)


class _ServerEngine:
    """One episode's view of the server; see :class:`agentic_video.rollout.engine.Engine`."""

    def __init__(
        self,
        server: Endpoint,
        pictures: _FrameCache,
        chat_format: ChatFormat,
        spec: ModelSpec,
        seeds: Iterator[int | None],
    ):
        self._server, self._pictures, self._format = server, pictures, chat_format
        self._spec, self._seeds = spec, seeds

    async def generate(self, request: GenerationRequest) -> Completion:
        body: dict[str, Any] = {
            "token_ids": list(request.prompt_ids),
            "sampling_params": {
                "temperature": self._spec.temperature,
                "top_p": self._spec.top_p,
                "max_tokens": request.max_tokens,
                "stop": list(request.stop),
                "stop_token_ids": sorted(request.end_ids),
                "include_stop_str_in_output": True,
                "skip_special_tokens": False,
                "logit_bias": {str(token): -100.0 for token in request.banned_ids},
            },
        }
        if (seed := next(self._seeds)) is not None:
            body["sampling_params"]["seed"] = seed
        try:
            if request.visuals:
                body["features"] = await self._features(request)
            ids = await self._server.post(GENERATE, body, lambda reply: _read_ids(reply, request.max_tokens))
        except EndpointError as error:
            raise EngineError(str(error)) from error
        return Completion(ids)

    async def _features(self, request: GenerationRequest) -> dict[str, Any]:
        """The processed frames of a prompt, and where in it they are."""
        frames = []
        for visual in request.visuals:
            if isinstance(visual, Clip):
                raise EngineError("vLLM's token interface is given frames, not clips: agentic_video.system.frames_as")
            frames.append(visual)
        pictures = [await self._pictures.of(frame) for frame in frames]
        written = [self._format.image_ids(frame.width, frame.height)[1] for frame in frames]
        try:
            starts = [start for start, _ in spans(request.prompt_ids, written)]
        except ValueError as error:
            raise EngineError(str(error)) from error
        token = self._format.image_token_id  # the server would take ends around the placeholders for some more
        places = [
            {"offset": start + ids.index(token), "length": ids.count(token)}
            for start, ids in zip(starts, written, strict=True)
        ]
        return {
            "mm_hashes": {"image": [picture.name for picture in pictures]},
            "mm_placeholders": {"image": places},
            "kwargs_data": {"image": [picture.pixels for picture in pictures]},
        }


def _read_ids(reply: Any, most: int) -> tuple[int, ...]:
    """Generated ids; whoever decodes them relies on their being some."""
    try:
        ids = reply["choices"][0]["token_ids"]
    except (KeyError, IndexError, TypeError) as error:
        raise UnreadableReply(f"{GENERATE} gave no token ids ({type(error).__name__}: {error})") from None
    if not isinstance(ids, list) or len(ids) > most:
        raise UnreadableReply(f"{GENERATE} gave no list of at most {most} token ids")
    if any(type(token) is not int or not 0 <= token < 2**31 for token in ids):
        raise UnreadableReply(f"{GENERATE} gave something that is no token id")
    return tuple(ids)
