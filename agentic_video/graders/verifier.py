"""A vision-language model that is shown frames and asked a question, behind any OpenAI-compatible endpoint."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from agentic_video.graders.endpoint import Endpoint, EndpointConfig, EndpointError, UnreadableReply
from agentic_video.graders.images import ImageFormat, data_url
from agentic_video.types.frame import Frame


class VerifierError(EndpointError):
    """The verifier didn't answer."""


@dataclass(frozen=True)
class VerifierConfig(EndpointConfig):
    """Settings of the verifier (see :class:`EndpointConfig`).

    Attributes:
        timeout: Seconds for one request.
        concurrency: Most requests at a time from one reward worker.
        max_tokens: Most tokens of a reply.
        image_format: How frames travel: ``jpeg`` (small) or ``png`` (exact).
        image_quality: Of ``jpeg``, 1 to 95.
    """

    timeout: Annotated[float, Field(gt=0)] = 120.0
    concurrency: Annotated[int, Field(ge=1)] = 8
    max_tokens: Annotated[int, Field(ge=0)] = 256
    image_format: ImageFormat = "jpeg"
    image_quality: Annotated[int, Field(ge=1, le=95)] = 90


class Verifier:
    """Answers questions about frames."""

    def __init__(self, config: VerifierConfig):
        self.config = config
        self._endpoint = Endpoint(config, "verifier")

    async def ask(self, prompt: str, frames: Sequence[Frame]) -> str:
        """The model's reply to the frames, in order, and the prompt after them."""
        # Encoding a call's frames takes up to seconds: off the event loop, which serves all episodes of the worker.
        images = await asyncio.to_thread(self._encode, frames)
        content: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": image}} for image in images]
        content.append({"type": "text", "text": prompt})
        try:
            return await self._endpoint.chat([{"role": "user", "content": content}], _not_empty)
        except EndpointError as error:
            raise VerifierError(str(error)) from error

    def _encode(self, frames: Sequence[Frame]) -> list[str]:
        return [data_url(frame, self.config.image_format, self.config.image_quality) for frame in frames]


def _not_empty(reply: str) -> str:
    if not reply:
        raise UnreadableReply("an empty reply")
    return reply
