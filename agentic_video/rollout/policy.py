"""What drives an episode: a policy says something, and is shown something.

Here are the protocol that the episode knows and the scripted policy; rollouts have the token policy (``tokens.py``),
evaluation and teachers also the chat policy (``chat_policy.py``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentic_video.systems.base import EpisodeView
from agentic_video.types.message import AsideRequest, Message, Part
from agentic_video.types.trajectory import Aside, record_messages


class EngineError(Exception):
    """The engine behind a policy failed; the episode ends and says so."""


@dataclass(frozen=True)
class Utterance:
    """One turn as the policy said it.

    Attributes:
        text: Its text without what it was made to begin with (``prefix``), decoded from exactly the generated ids
            where there are ids. It may go on after a stop text by what the last token holds beyond it; whoever reads it
            stops there (:func:`until_stop`).
        num_tokens: Number of generated tokens.
        finished: False when it was cut at the token limit.
        forbidden: True when the model emitted a token that it must not emit (an image placeholder, say); the text
            ends before it.
        token_ids: The generated ids, the forbidden one and all after it left out; empty where there are none.
        prefix: What the turn begins with that the policy didn't say, the chat template's part included; None: the
            system's ``reply_prefix``.
    """

    text: str
    num_tokens: int
    finished: bool = True
    forbidden: bool = False
    token_ids: tuple[int, ...] = ()
    prefix: str | None = None

    def whole(self, reply_prefix: str) -> str:
        """The turn with its beginning, as grammars and rewards read it.

        Args:
            reply_prefix: The system's.
        """
        return (reply_prefix if self.prefix is None else self.prefix) + self.text


def until_stop(text: str, stops: Sequence[str]) -> str:
    """A turn up to the end of the first stop text in it; all of it when it holds none.

    What follows isn't read. Where an engine stopped, that is the tail of the token in which the stop text ends: Qwen's
    vocabulary has 265 tokens that begin with ``>`` and go on.
    """
    return text[: min((text.index(stop) + len(stop) for stop in stops if stop in text), default=None)]


class Policy(Protocol):
    """What an episode asks of whatever says its turns."""

    async def begin(self, messages: Sequence[Message]) -> bool:
        """Start an episode. False when the opening doesn't fit the token budget."""

    async def say(self, view: EpisodeView) -> Utterance:
        """Say one turn.

        Raises:
            EngineError: No turn could be had.
        """

    async def show(self, parts: Sequence[Part]) -> bool:
        """Append an observation. False, and nothing appended, when it doesn't fit the token budget."""

    async def ask(self, request: AsideRequest) -> Aside:
        """Say something in a conversation of its own; the episode's stays as it is. Several may be asked at a time.

        Raises:
            AsideBudgetError: It doesn't fit the token budget.
            EngineError: No reply could be had.
        """

    @property
    def num_tokens(self) -> int:
        """Tokens of the sequence so far, prompt and images included."""


class ScriptedPolicy:
    """Says what a function tells it to say: for tests, benchmarks and oracles.

    Args:
        script: Gets the view of the episode (question, video, finished turns), returns the text of the next turn
            without the system's ``reply_prefix``.
        asides: Gets what is asked beside the episode, returns the reply without its prefix; None for systems that ask
            nothing.
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
            raise EngineError("the script says nothing beside the episode: ScriptedPolicy(..., asides=...)")
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
    """The aside of a request and of what was said to it.

    Args:
        said: Without the prefix; what follows the first stop text is left out.
    """
    return Aside(
        messages=record_messages(request.messages),
        text=request.prefix + until_stop(said, request.stop),
        num_tokens=num_tokens,
        prompt_tokens=prompt_tokens,
        finished=finished,
        prefix=request.prefix,
        stop=request.stop,
        token_ids=token_ids,
    )
