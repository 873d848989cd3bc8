"""A tool behind HTTP: the request goes out as JSON, and a text and times come back.

The times' frames come from the frame store, like any tool's: only text comes over the wire.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field

from agentic_video.graders.endpoint import Endpoint, EndpointConfig, UnreadableReply
from agentic_video.types.text import is_unicode


@dataclass(frozen=True)
class RemoteConfig:
    """Address and limits of a service.

    Attributes:
        url: Of the service, e.g. ``http://host:9000``; requests are posted to ``/call`` below it.
        name: Of the tool: the field ``model`` of each request.
        api_key_env: Environment variable that holds the key, which is sent as a bearer token; a service of your own
            needs none.
        timeout: Seconds for one request.
        max_retries: How often a failed or unreadable reply is asked for again.
        retry_wait: Seconds before the first retry; doubled each time, at most 30.
        concurrency: Most requests at a time from one agent-loop worker.
        max_reply_bytes: Most bytes of a reply; a larger one isn't read to its end.
        max_chars: A longer text is cut there.
        max_times: More times are left out.
    """

    url: Annotated[str, Field(pattern="^https?://")]
    name: str = "tool"
    api_key_env: str = "TOOL_API_KEY"
    timeout: Annotated[float, Field(gt=0)] = 30.0
    max_retries: Annotated[int, Field(ge=0)] = 1
    retry_wait: Annotated[float, Field(ge=0)] = 0.5
    concurrency: Annotated[int, Field(ge=1)] = 16
    max_reply_bytes: Annotated[int, Field(ge=1)] = 2**20
    max_chars: Annotated[int, Field(ge=1)] = 2_000
    max_times: Annotated[int, Field(ge=0)] = 8

    def endpoint(self) -> EndpointConfig:
        """The same for :class:`agentic_video.graders.endpoint.Endpoint`."""
        known = asdict(self)
        same = ("api_key_env", "timeout", "max_retries", "retry_wait", "concurrency")
        return EndpointConfig(base_url=self.url, model=self.name, **{name: known[name] for name in same})


@dataclass(frozen=True)
class RemoteReply:
    """Reply of a service.

    Attributes:
        text: Cut to the config's length.
        times: Moments of the video in seconds that it points at, within the video; at most the config's number.
    """

    text: str
    times: tuple[float, ...] = ()


class RemoteTool:
    """A client of one service. It belongs to the event loop that asks first."""

    def __init__(self, config: RemoteConfig):
        self._config = config
        self._endpoint = Endpoint(config.endpoint(), f"service {config.name!r}", config.max_reply_bytes)

    async def call(self, arguments: Mapping[str, Any], video: str, duration: float) -> RemoteReply:
        """Ask once, with bounded retries.

        The request is ``{"model": name, "arguments": {...}, "video": path, "duration": seconds}``, the reply
        ``{"text": "...", "times": [seconds, ...]}``, of which ``times`` may be missing.

        Args:
            arguments: What the agent asks, as plain data; check what the model wrote before.
            video: The video's path, or whatever the service knows it by.
        """
        body = {"arguments": dict(arguments), "video": video, "duration": duration}
        return await self._endpoint.post("/call", body, lambda reply: self._read(reply, duration))

    def _read(self, reply: Any, duration: float) -> RemoteReply:
        if not isinstance(reply, Mapping) or not isinstance(reply.get("text"), str):
            raise UnreadableReply('the reply is no {"text": "...", "times": [...]}')
        times = reply.get("times", [])
        if not isinstance(times, list) or not all(map(_is_time, times)):
            raise UnreadableReply("times must be a list of numbers (seconds)")
        text = reply["text"]
        if not is_unicode(text):
            raise UnreadableReply("the text holds half of a surrogate pair")
        if len(text) > self._config.max_chars:
            text = text[: self._config.max_chars] + "..."
        within = [float(time) for time in times if 0 <= time <= duration]
        return RemoteReply(text, tuple(within[: self._config.max_times]))


def _is_time(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return not isinstance(value, float) or math.isfinite(value)
