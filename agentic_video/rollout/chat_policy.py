"""The policy of evaluation and of teachers: has turns said by any OpenAI-compatible chat endpoint.

Text and images keep their order. A server counts the tokens, so budgets are kept by what it reports: the tokens of the
latest request and its reply. A server also takes the stop text away that ended a turn; here it is put back, because
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
from agentic_video.rollout.policy import EngineError, Utterance, aside_of, until_stop
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import EpisodeView, System
from agentic_video.types.frame import Clip
from agentic_video.types.message import AsideRequest, Message, Part
from agentic_video.types.trajectory import Aside

GO_ON: Mapping[str, Any] = {"continue_final_message": True, "add_generation_prompt": False}
"""Fields with which vLLM and SGLang go on from a reply that was begun; :attr:`ChatConfig.fields` has a say in them."""


MAX_TOKENS = 2**31
"""More tokens than any request has: a server that counts more doesn't count."""


@dataclass(frozen=True)
class ChatConfig(EndpointConfig):
    """How to reach a model that plays episodes (see :class:`EndpointConfig`).

    Attributes:
        timeout: Seconds for one turn.
        max_tokens: Most tokens of one turn; 0 leaves it to the server.
        image_format: How frames travel: ``jpeg`` (small) or ``png`` (exact).
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
    """What an episode cost, as the server counted it; 0 where it doesn't count.

    Attributes:
        prompt_tokens: Of all requests together; each request carries the whole conversation.
        completion_tokens: Of all replies together.
        requests: Replies that were used.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 0

    @classmethod
    def of(cls, choice: Mapping[str, Any]) -> "Usage":
        """What one reply cost; a number that makes no sense is 0.

        Args:
            choice: With the reply's ``usage``, as :class:`~agentic_video.graders.endpoint.Endpoint` hands it out.
        """
        counted = choice.get("usage") or {}
        tokens = (counted.get(name) for name in ("prompt_tokens", "completion_tokens"))
        prompt, said = (one if type(one) is int and 0 < one <= MAX_TOKENS else 0 for one in tokens)
        return cls(prompt, said, 1)

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
    """Has turns said by a chat endpoint; see :class:`agentic_video.rollout.policy.Policy`.

    Args:
        endpoint: The client, shared by all episodes of an event loop.
        config: The endpoint's config.
        system: The way of watching: its stop texts, whose messages its observations are, and what of earlier images
            stays in its context.
        limits: Token budgets; None leaves them to the server. Prompt and response are kept together, as far as the
            server says how many tokens there are: an observation is refused when nothing is left for it.
        seeds: The field ``seed`` of each request in turn, unless the config's fields have one; None leaves it out.
        reply_start: What the server's chat template begins each reply with, which the server leaves out of its text;
            None where it isn't known: a reply that closes a thought which it never opened has had it opened.

    A server that takes thoughts out of the text (a reasoning parser) has them put back where the system asks for them.

    Attributes:
        usage: What the episode has cost so far.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        config: ChatConfig,
        system: System,
        limits: TokenLimits | None = None,
        seeds: Iterator[int | None] | None = None,
        reply_start: str | None = None,
    ):
        self._reply_start = reply_start
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
        """Have the server go on with a conversation."""
        fields: dict[str, Any] = {"seed": seed}
        prefix, written = begin_with(self._reply_start or "", prefix)
        if written:
            messages = [*messages, {"role": "assistant", "content": prefix}]
            fields |= GO_ON
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
        """Put one turn in the place of everything said and shown since the conversation had ``since`` messages.

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
        """A reply, apart from what it was made to begin with."""
        text = with_thoughts(choice) if self._asks_for_thoughts else text_of(choice)
        ended, usage = choice.get("finish_reason"), Usage.of(choice)
        # Servers that can't go on from a prefix, and some that can, say it again; and so does a thought put back.
        rest = without_beginning(text, prefix)
        text = text if rest is None else rest
        if self._reply_start is None and not prefix and closes_unopened_thought(text):
            prefix = UNSEEN_START
        matched = choice.get("stop_reason") or choice.get("matched_stop")
        whole = with_stop(text, stop, matched, ended, before=prefix)
        stopped = any(one in whole for one in stop)
        return _Reply(whole, stopped or ended != "length", usage, prefix)


def with_stop(text: str, stops: Sequence[str], matched: Any, ended: Any, before: str = "") -> str:
    """A turn as it was said, with the stop text at its end that ended it.

    vLLM and SGLang say which text that was. Other servers don't: there a tag that was opened more often than it was
    closed is the one. A server that knows no stop texts goes on after them: what follows the first is cut off.

    Args:
        text: The reply.
        stops: The stop texts.
        matched: What the server says it stopped at; a text, or anything else where it doesn't say.
        ended: The reply's ``finish_reason``.
        before: What the reply was made to start with.
    """
    if any(stop in text for stop in stops):
        return until_stop(text, stops)
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
