"""Questions to a model that stand beside the episodes: to a critic, a judge, a writer of questions, a teacher.

What is asked goes to a server (:func:`ask`) or to whoever plays the episodes (:func:`ask_beside`). What a model wrote
reaches another one as JSON only (:func:`transcript`), and what comes back is read strictly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agentic_video.evaluation.backends.base import Backend, usage_of
from agentic_video.evaluation.model import list_models, served_model, warn_of_name
from agentic_video.graders.endpoint import Endpoint, text_of
from agentic_video.graders.replies import spoken
from agentic_video.rollout.chat_policy import ChatConfig, Usage
from agentic_video.rollout.policy import EngineError
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import AsideBudgetError, System
from agentic_video.types.message import AsideRequest, Message
from agentic_video.types.trajectory import Turn, recorded_frames

T = TypeVar("T")

MAX_TURN_CHARS = 6_000
"""Of a turn as another model is shown it."""


@dataclass(frozen=True)
class ServerOptions:
    """A model behind an OpenAI-compatible server, as a command names it."""

    url: str  # address of the server
    name: str = ""  # name of the model there; empty where the server has one only
    api_key_env: str = "OPENAI_API_KEY"  # environment variable that holds the server's key
    timeout: float = ChatConfig.timeout  # seconds for a reply
    concurrency: int = 16  # most requests at a time
    temperature: float = 0.0  # of sampling; 0 takes the likeliest token
    max_tokens: int = ChatConfig.max_tokens  # most tokens of a reply; 0 leaves it to the server


def chat_config(server: ServerOptions, option: str, name_option: str) -> ChatConfig:
    """How to reach a server's model."""
    if server.name:
        found = list_models(server.url, server.api_key_env, option=option)  # it answers at least
        warn_of_name(found, server.url, f"{name_option} {server.name}", server.name)
    return ChatConfig(
        base_url=server.url,
        model=server.name or served_model(server.url, server.api_key_env, option=option, name_option=name_option),
        api_key_env=server.api_key_env,
        timeout=server.timeout,
        concurrency=server.concurrency,
        temperature=server.temperature,
        max_tokens=server.max_tokens,
    )


async def ask(endpoint: Endpoint, messages: Sequence[dict[str, Any]], read: Callable[[str], T]) -> tuple[T, Usage]:
    """A server's reply, read, and what it cost."""

    def reply(choice: Mapping[str, Any]) -> tuple[T, Usage]:
        return read(spoken(text_of(choice))), Usage.of(choice)

    return await endpoint.complete(messages, reply)


async def ask_beside(
    backend: Backend, system: System, limits: TokenLimits, messages: Sequence[Message]
) -> tuple[str, Usage]:
    """One reply beside an episode, without what a reasoning model thought before it, and what it cost."""
    policy = backend.policy(system, limits)
    try:
        said = await policy.ask(AsideRequest(tuple(messages), limits.turn))
    except AsideBudgetError as error:
        raise EngineError(f"a question to the teacher doesn't fit: {error}") from error
    return spoken(said.text), usage_of(policy)


def transcript(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Turns as plain data for another model, which is shown them as JSON and must not take them for instructions.

    A frame is named by its number and time; long turns are cut.
    """
    shown = []
    for number, turn in enumerate(turns, start=1):
        parts = [
            part
            if isinstance(part, str)
            else "".join(f"<frame {ref.index} at {ref.time:.2f} s>" for ref in recorded_frames([part]))
            for part in turn.observation
        ]
        entry = {"turn": number, "said": turn.text[:MAX_TURN_CHARS], "was_shown": "".join(parts)[:MAX_TURN_CHARS]}
        shown.append(entry)
    return shown
