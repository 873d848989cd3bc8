"""The interface between an episode and the model that plays it.

Rollouts use the token policy (``tokens.py``), evaluation and teachers also the chat policy (``chat_policy.py``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentic_video.systems.base import EpisodeView
from agentic_video.types.message import AsideRequest, Message, Part
from agentic_video.types.trajectory import Aside, record_messages


class EngineError(Exception):
    """The engine behind a policy failed; the episode ends with that reason."""


@dataclass(frozen=True)
class Utterance:
    """One generated turn."""

    text: str
    """Without ``prefix``, decoded from exactly the generated ids. It may continue after a stop text by the rest of the
    last token; readers stop there (:func:`cut_at_stop`)."""
    num_tokens: int
    finished: bool = True
    """False if it was cut at the token limit."""
    forbidden: bool = False
    """The model emitted a forbidden token (an image placeholder, say); text and ids end before it."""
    token_ids: tuple[int, ...] = ()
    prefix: str | None = None
    """Beginning that the policy didn't generate, the chat template's part included; None: ``reply_prefix``."""

    def whole(self, reply_prefix: str) -> str:
        """The turn with its beginning (``reply_prefix`` is the system's), as grammars and rewards read it."""
        return (reply_prefix if self.prefix is None else self.prefix) + self.text


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """Cut a turn after the first stop text in it; all of it if it holds none.

    An engine stops with the token in which the stop text ends, which may hold more: Qwen's vocabulary has 265 tokens
    that begin with ``>`` and continue.
    """
    return text[: min((text.index(stop) + len(stop) for stop in stops if stop in text), default=None)]


class Policy(Protocol):
    """Generates an episode's turns."""

    async def begin(self, messages: Sequence[Message]) -> bool:
        """Start an episode; False if the opening doesn't fit the token budget."""

    async def say(self, view: EpisodeView) -> Utterance:
        """Generate one turn, or raise EngineError."""

    async def show(self, parts: Sequence[Part]) -> bool:
        """Append an observation; False, and nothing appended, if it doesn't fit the token budget."""

    async def ask(self, request: AsideRequest) -> Aside:
        """Answer a side query in a separate conversation; several may run at a time.

        Raises:
            AsideBudgetError: It doesn't fit the token budget.
            EngineError: The engine failed.
        """

    @property
    def num_tokens(self) -> int:
        """Tokens of the sequence so far, prompt and images included."""


class ScriptedPolicy:
    """Plays turns from a function: for tests, benchmarks and oracles.

    Args:
        script: Maps the view of the episode (question, video, finished turns) to the text of the next turn, without
            the system's ``reply_prefix``.
        asides: Maps a side query to its reply without the prefix; None for systems without side queries.
    """

    def __init__(self, script: Callable[[EpisodeView], str], asides: Callable[[AsideRequest], str] | None = None):
        self._script = script
        self._asides = asides

    async def begin(self, messages: Sequence[Message]) -> bool:
        return True

    async def say(self, view: EpisodeView) -> Utterance:
        text = self._script(view)
        return Utterance(text, num_tokens=len(text.split()))

    async def show(self, parts: Sequence[Part]) -> bool:
        return True

    async def ask(self, request: AsideRequest) -> Aside:
        if self._asides is None:
            raise EngineError("the script answers no side queries; give ScriptedPolicy(..., asides=...)")
        said = self._asides(request)
        return aside_of(request, said, num_tokens=len(said.split()))

    @property
    def num_tokens(self) -> int:
        return 0


def aside_of(
    request: AsideRequest,
    said: str,
    *,
    num_tokens: int,
    prompt_tokens: int = 0,
    finished: bool = True,
    token_ids: tuple[int, ...] = (),
) -> Aside:
    """Record a side query and its reply (without the prefix), which is cut after the first stop text."""
    return Aside(
        messages=record_messages(request.messages),
        text=request.prefix + cut_at_stop(said, request.stop),
        num_tokens=num_tokens,
        prompt_tokens=prompt_tokens,
        finished=finished,
        prefix=request.prefix,
        stop=request.stop,
        token_ids=token_ids,
    )
