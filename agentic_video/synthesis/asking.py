"""Side queries to a model: to a critic, a judge, a writer of questions, a teacher.

Texts of one model reach another one as JSON only (:func:`transcript`), and replies are read strictly.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, TypeVar

from agentic_video.evaluation.backends.base import Backend, usage_of
from agentic_video.evaluation.model import list_models, served_model, warn_of_name
from agentic_video.graders.endpoint import Endpoint, text_of
from agentic_video.graders.replies import spoken
from agentic_video.rollout.chat_policy import ChatConfig, Usage
from agentic_video.rollout.policy import EngineError
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.synthesis.jobs import JobOptions
from agentic_video.systems.base import AsideBudgetError, System
from agentic_video.types.message import AsideRequest, Message
from agentic_video.types.trajectory import Turn, recorded_frames

T = TypeVar("T")

MAX_TURN_CHARS = 6_000
"""Of a turn that another model is shown."""


def prompt(name: str) -> str:
    """A file of ``synthesis/prompts`` without its last line break."""
    return (files("agentic_video.synthesis") / "prompts" / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")


def chat_config(
    job: JobOptions,
    url: str,
    name: str,
    option: str,
    name_option: str,
    *,
    temperature: float = 0.0,
    max_tokens: int = ChatConfig.max_tokens,
) -> ChatConfig:
    """The connection to a server's model, which must answer.

    Args:
        name: Of the model; empty where the server has only one.
        option: Names the server in messages.
        name_option: Names the model in messages.
        max_tokens: 0 leaves the length to the server.
    """
    if name:
        listed = list_models(url, job.api_key_env, option=option)
        warn_of_name(listed, url, f"{name_option} {name}", name)
    return ChatConfig(
        base_url=url,
        model=name or served_model(url, job.api_key_env, option=option, name_option=name_option),
        api_key_env=job.api_key_env,
        timeout=job.timeout,
        concurrency=job.concurrency,
        temperature=temperature,
        max_tokens=max_tokens,
    )


def chat_messages(instructions: str, content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of the chat completions API: instructions, and what they are about."""
    return [{"role": "system", "content": instructions}, {"role": "user", "content": content}]


async def ask(endpoint: Endpoint, messages: Sequence[dict[str, Any]], read: Callable[[str], T]) -> tuple[T, Usage]:
    """A server's reply, read without the model's thoughts, and its cost.

    ``read`` raises :class:`~agentic_video.graders.endpoint.UnreadableReply` to have it asked for again.
    """

    def reply(choice: Mapping[str, Any]) -> tuple[T, Usage]:
        return read(spoken(text_of(choice))), Usage.of(choice)

    return await endpoint.complete(messages, reply)


async def ask_player(
    backend: Backend, system: System, limits: TokenLimits, messages: Sequence[Message]
) -> tuple[str, Usage]:
    """One reply of the model that plays, outside of an episode: without its thoughts, and its cost.

    The system's stop texts and ``reply_prefix`` don't count here: a reply may quote a call.
    """
    policy = backend.policy(system, limits)
    try:
        reply = await policy.ask(AsideRequest(tuple(messages), limits.turn))
    except AsideBudgetError as error:
        raise EngineError(f"a question to the teacher doesn't fit: {error}") from error
    return spoken(reply.text), usage_of(policy)


def instructed(instructions: str, material: object) -> tuple[Message, Message]:
    """Messages of a side query: instructions, and the material as JSON."""
    return Message("system", (instructions,)), Message("user", (json.dumps(material),))


def transcript(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Turns as plain data for another model; frames by number and time, long turns cut."""
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
