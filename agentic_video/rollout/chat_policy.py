"""The policy of evaluation and of teachers: an OpenAI-compatible chat endpoint generates the turns.

Text and images keep their order. A server counts the tokens, so budgets are kept by its reports: the tokens of the
latest request and its reply. A server also removes the stop text that ended a turn; here it is restored, because
systems read it.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import Any

from agentic_video.graders.endpoint import Endpoint, EndpointConfig, EndpointError, text_of, with_thoughts
from agentic_video.graders.images import ImageFormat, data_url
from agentic_video.rollout.chat_template import (
    UNSEEN_START,
    begin_with,
    closes_unopened_thought,
    without_beginning,
)
from agentic_video.rollout.policy import EngineError, Utterance, aside_of, cut_at_stop
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import EpisodeView, System
from agentic_video.types.frame import Clip
from agentic_video.types.message import AsideRequest, Message, Part
from agentic_video.types.trajectory import Aside

CONTINUE_FIELDS: Mapping[str, Any] = {"continue_final_message": True, "add_generation_prompt": False}
"""Fields that make vLLM and SGLang continue a reply; :attr:`ChatConfig.fields` override them."""


MAX_TOKENS = 2**31
"""Most tokens of a request that are believed."""


@dataclass(frozen=True)
class ChatConfig(EndpointConfig):
    """Endpoint of a model that plays episodes (see :class:`EndpointConfig`).

    Attributes:
        timeout: Seconds for one turn.
        max_tokens: Most tokens of one turn; 0 leaves it to the server.
        image_format: Encoding of frames: ``jpeg`` (small) or ``png`` (exact).
        image_quality: Of ``jpeg``, 1 to 95.
        fields: More fields of each request, as the server takes them (``top_p``, ``seed``, ...); null leaves one out.
    """

    timeout: float = 600.0
    max_tokens: int = 4_096
    image_format: ImageFormat = "jpeg"
    image_quality: int = 95
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Usage:
    """Token counts of an episode by the server, all requests and replies together; 0 if it doesn't count."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 0

    @classmethod
    def of(cls, choice: Mapping[str, Any]) -> "Usage":
        """Counts of one reply with its ``usage``; a number that makes no sense is 0."""
        counted = choice.get("usage") or {}
        tokens = (counted.get(name) for name in ("prompt_tokens", "completion_tokens"))
        prompt, reply = (count if type(count) is int and 0 < count <= MAX_TOKENS else 0 for count in tokens)
        return cls(prompt, reply, 1)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.requests + other.requests,
        )


@dataclass(frozen=True)
class _Reply:
    text: str
    finished: bool
    usage: Usage
    prefix: str


class ChatPolicy:
    """Generates turns with a chat endpoint; see :class:`agentic_video.rollout.policy.Policy`.

    A server that moves thoughts out of the text (a reasoning parser) has them restored if the system asks for them.

    Args:
        endpoint: The client, shared by all episodes of an event loop.
        limits: Token budgets, prompt and response together as far as the server counts them; None for the server's.
        seeds: The field ``seed`` of each request in turn, unless the config's fields have one; None leaves it out.
        reply_start: Beginning of each reply by the server's chat template, which its text lacks; None if unknown: a
            reply that closes a thought which it never opened then gets the opening.
        word_ends: Texts of ids at which the model stops and that a reply keeps; servers remove them.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        config: ChatConfig,
        system: System,
        limits: TokenLimits | None = None,
        seeds: Iterator[int | None] | None = None,
        reply_start: str | None = None,
        word_ends: Mapping[int, str] | None = None,
    ):
        self._reply_start = reply_start
        self._word_ends = word_ends or {}
        self._asks_for_thoughts = "<think>" in system.reply_prefix
        self._endpoint = endpoint
        self._config = config
        self._system = system
        self._limits = limits
        self._seeds = seeds or repeat(None)
        self._messages: list[dict[str, Any]] = []
        self._shown: dict[int, tuple[Part, ...]] = {}
        self._tokens = 0
        self.usage = Usage()

    @property
    def num_tokens(self) -> int:
        return self._tokens

    async def begin(self, messages: Sequence[Message]) -> bool:
        for message in messages:
            self._asks_for_thoughts |= any("<think>" in part for part in message.parts if isinstance(part, str))
            await self._append(message.role, message.parts)
        return True

    async def say(self, view: EpisodeView) -> Utterance:
        limit: int | None = self._config.max_tokens or None
        if self._limits is not None:
            room = max(1, self._limits.prompt + self._limits.response - self._tokens)
            limit = min(limit or room, self._limits.turn, room)
        prefix = self._system.reply_prefix
        reply = await self._complete(self._messages, limit, self._system.stop, prefix, next(self._seeds))
        self._tokens = reply.usage.prompt_tokens + reply.usage.completion_tokens
        said = Utterance(reply.text, reply.usage.completion_tokens, reply.finished, prefix=reply.prefix)
        self._messages.append({"role": "assistant", "content": said.whole(prefix)})
        return said

    async def ask(self, request: AsideRequest) -> Aside:
        limit = min(request.max_tokens, self._config.max_tokens or request.max_tokens)
        if self._limits is not None:
            limit = min(limit, self._limits.turn)
        seed = next(self._seeds)  # before anything is waited for: each of several gets its own in their order
        messages = [
            {"role": message.role, "content": await asyncio.to_thread(self._encode, message.parts)}
            for message in request.messages
        ]
        reply = await self._complete(messages, limit, request.stop, request.prefix, seed)
        return aside_of(
            replace(request, prefix=reply.prefix),
            reply.text,
            num_tokens=reply.usage.completion_tokens,
            prompt_tokens=reply.usage.prompt_tokens,
            finished=reply.finished,
        )

    async def _complete(
        self,
        messages: Sequence[dict[str, Any]],
        limit: int | None,
        stop: Sequence[str],
        prefix: str,
        seed: int | None,
    ) -> _Reply:
        fields: dict[str, Any] = {"seed": seed}
        prefix, written = begin_with(self._reply_start or "", prefix)
        if written:
            messages = [*messages, {"role": "assistant", "content": prefix}]
            fields |= CONTINUE_FIELDS
        fields |= {**self._config.fields, "max_tokens": limit, "stop": list(stop) or None}
        try:
            reply = await self._endpoint.complete(messages, partial(self._read, stop=stop, prefix=prefix), fields)
        except EndpointError as error:
            raise EngineError(str(error)) from error
        self.usage += reply.usage
        return reply

    async def show(self, parts: Sequence[Part]) -> bool:
        if self._limits is not None and self._tokens >= self._limits.prompt + self._limits.response:
            return False
        if self._system.context == "latest_evidence":
            for number, earlier in self._shown.items():
                left = _text_parts(self._system.drop_images(earlier))
                self._messages[number]["content"] = left or [{"type": "text", "text": " "}]
            self._shown.clear()
        await self._append(self._system.observation_role, tuple(parts))
        return True

    @property
    def num_messages(self) -> int:
        """Length of the conversation; see :meth:`rewrite`."""
        return len(self._messages)

    def rewrite(self, since: int, text: str) -> None:
        """Replace all messages since the conversation had ``since`` of them by one turn.

        For teachers that try a turn more than once before it counts.
        """
        del self._messages[since:]
        self._shown = {number: parts for number, parts in self._shown.items() if number < since}
        self._messages.append({"role": "assistant", "content": text})

    async def _append(self, role: str, parts: tuple[Part, ...]) -> None:
        # Encoding takes up to seconds: off the event loop, which serves all episodes.
        content = await asyncio.to_thread(self._encode, parts)
        self._shown[len(self._messages)] = parts
        self._messages.append({"role": role, "content": content})

    def _encode(self, parts: Sequence[Part]) -> list[dict[str, Any]]:
        content: list[dict[str, Any]] = []
        for part in parts:
            if isinstance(part, str):
                content += _text_parts((part,))
            elif isinstance(part, Clip):
                # Servers differ in how they take videos, if at all: a clip's frames are sent as images.
                for frame in part.frames:
                    content += self._encode((f"<{frame.time:.1f} seconds>", frame))
            else:
                url = data_url(part, self._config.image_format, self._config.image_quality)
                content.append({"type": "image_url", "image_url": {"url": url}})
        return content

    def _read(self, choice: dict[str, Any], *, stop: Sequence[str], prefix: str) -> _Reply:
        """A reply without its forced beginning."""
        text = with_thoughts(choice) if self._asks_for_thoughts else text_of(choice)
        ended, usage = choice.get("finish_reason"), Usage.of(choice)
        # Servers that can't continue a prefix, and some that can, repeat it; and so does a restored thought.
        rest = without_beginning(text, prefix)
        text = text if rest is None else rest
        if self._reply_start is None and not prefix and closes_unopened_thought(text):
            prefix = UNSEEN_START
        matched = choice.get("stop_reason") or choice.get("matched_stop")
        end = self._word_ends.get(matched, "") if type(matched) is int else ""
        text = text.removesuffix(end) + end
        whole = with_stop(text, stop, matched, ended, before=prefix)
        stopped = any(ending in whole for ending in stop)
        return _Reply(whole, stopped or ended != "length", usage, prefix)


def with_stop(text: str, stops: Sequence[str], matched: Any, ended: Any, before: str = "") -> str:
    """Restore the stop text that ended a turn.

    vLLM and SGLang report it (``matched``). With other servers it is a tag that was opened more often than it was
    closed, in the text or ``before`` it. A server that knows no stop texts continues after them: the rest is cut off.
    """
    if any(stop in text for stop in stops):
        return cut_at_stop(text, stops)
    if ended != "stop":
        return text
    if isinstance(matched, str):
        return text + matched if matched in stops else text
    for stop in stops:
        if stop.startswith("</") and (before + text).count("<" + stop[2:]) > (before + text).count(stop):
            return text + stop
    return text


def _text_parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    # Some servers refuse empty texts.
    return [{"type": "text", "text": part} for part in parts if isinstance(part, str) and part]
