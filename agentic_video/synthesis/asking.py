"""Single questions to a model behind a server (a judge of trajectories, a writer of questions), and other voices."""

import argparse
import copy
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.context import EvalContext
from agentic_video.evaluation.model import served_model
from agentic_video.graders.endpoint import Endpoint
from agentic_video.rollout.chat_policy import ChatConfig, Usage

T = TypeVar("T")


def chat_config(url: str, name: str, arguments: argparse.Namespace, temperature: float, max_tokens: int) -> ChatConfig:
    """How to reach a model.

    Args:
        name: Its name there; empty where the server has one only.
        arguments: Holds ``api_key_env``, ``timeout`` and ``concurrency``.
        max_tokens: Of a reply; 0 leaves it to the server.

    Raises:
        SetupError: The server can't be reached, or has several models.
    """
    return ChatConfig(
        base_url=url,
        model=name or served_model(url, os.environ.get(arguments.api_key_env)),
        api_key_env=arguments.api_key_env,
        timeout=arguments.timeout,
        concurrency=arguments.concurrency,
        temperature=temperature,
        max_tokens=max_tokens,
    )


async def ask(endpoint: Endpoint, messages: Sequence[dict[str, Any]], read: Callable[[str], T]) -> tuple[T, Usage]:
    """A reply, read, and what it cost.

    Args:
        read: Reads the reply without what a reasoning model thought before it; raises
            :class:`~agentic_video.graders.endpoint.Unreadable` to have it asked for again.

    Raises:
        EndpointError: No readable reply.
    """

    def reply(choice: Mapping[str, Any]) -> tuple[T, Usage]:
        text = choice["message"].get("content") or ""
        counted = choice.get("usage") or {}
        usage = Usage(_count(counted.get("prompt_tokens")), _count(counted.get("completion_tokens")), 1)
        return read(text.rpartition("</think>")[2].strip()), usage

    return await endpoint.complete(messages, reply)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def with_backend(cast: EvalContext, backend: Backend) -> EvalContext:
    """The same frames and graders, with somebody else who speaks; closing it is up to the first."""
    other = copy.copy(cast)
    other.backend = backend
    return other
