"""The interface of a system: one published way of watching a video.

A system defines what the agent sees first, what it may say and call, when it stops, and what reward it earns. It holds
only constants; the state of an episode is in the :class:`EpisodeView`. Members that evaluation, demonstrations and the
toy world look for are optional, and listed in docs/extending.md."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agentic_video.graders.answer import MatchRule
from agentic_video.graders.base import Graders
from agentic_video.graders.judge import grade_answer
from agentic_video.tools.base import Video
from agentic_video.types.action import Action, Calls, Illegal
from agentic_video.types.message import AsideRequest, Message, Observation, ObservationRole, Part
from agentic_video.types.plain import as_tuple
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Aside, Trajectory, Turn

Context = Literal["all", "latest_evidence"]
"""Part of an episode in the model's context: everything, or all text with the latest images only."""


class AsideBudgetError(Exception):
    """A side query over the episode's limits; the message names the limit."""


@dataclass(frozen=True)
class EpisodeView:
    """The part of an episode on which a system decides.

    Attributes:
        turns: The finished turns.
        rollout_index: Number of the rollout within its group.
        asker: Answers :meth:`ask`; None where the model can't be asked.
    """

    qa: VideoQA
    video: Video
    turns: tuple[Turn, ...] = ()
    rollout_index: int = 0
    asker: Callable[[AsideRequest], Awaitable[Aside]] | None = field(default=None, compare=False, repr=False)

    async def ask(
        self, messages: Sequence[Message], *, max_tokens: int, stop: Sequence[str] = (), prefix: str = ""
    ) -> Aside:
        """Ask the model itself in a separate conversation: as a sub-agent, a captioner, a verifier of itself.

        The model sees the messages only, and the episode's own context doesn't grow. For :meth:`System.observe` and
        ``after``; several queries may run in parallel, and those that are still open when these return are
        cancelled. All are recorded with the turn, or the trajectory.

        Args:
            messages: Texts, frames and clips; together at most ``max_images`` frames.
            max_tokens: Most generated tokens; the run's limits of a turn and of prompt and response hold too.
            stop: Texts after which it stops; they stay in the reply.
            prefix: Beginning of the reply, written by the environment; part of the aside's text.

        Returns:
            The reply, which is untrusted like any turn: it may be empty, cut, or say anything.

        Raises:
            AsideBudgetError: More than ``max_asides``, or the messages don't fit. Uncaught, it ends the episode with
                ``token_budget``.
            EngineError: The engine failed; don't catch it: the episode ends with ``engine_error``.
        """
        if self.asker is None:
            raise ValueError("view.ask: the model can be asked in observe and in after only")
        messages = as_tuple(messages, "view.ask: messages", "message")
        for number, message in enumerate(messages):
            if not isinstance(message, Message):
                raise TypeError(f"view.ask: messages[{number}] must be a Message, got {type(message).__name__}")
        if max_tokens < 1 or not messages:
            raise ValueError(f"view.ask needs a message and max_tokens above 0, got {len(messages)} and {max_tokens}")
        return await self.asker(AsideRequest(messages, max_tokens, tuple(stop), prefix))


class System(ABC):
    """One way of watching a video. Subclasses are frozen dataclasses whose fields are the config keys."""

    name: str
    max_turns: int
    max_images: int
    """Most images in the context at a time."""
    stop: tuple[str, ...]
    """Texts after which the engine stops; they stay in the output."""
    context: Context = "all"
    size_factor: int = 28
    """Sides of a shown frame are multiples of this: pixels along a side of one visual token."""
    max_asides: int = 16
    """Most side queries of an episode (:meth:`EpisodeView.ask`)."""
    train_asides: bool = False
    """Whether side queries are trained on: each is a sequence of its own, with the advantage of its episode."""
    observation_role: ObservationRole = "user"
    """Role of observations: ``user``, or ``tool``, which the model's chat template must know."""
    reply_prefix: str = ""
    """Beginning of each turn (``<think>``, say), written by the environment: it gets no loss, but a turn's text begins
    with it, for :meth:`parse` and for rewards."""
    forced_answer: str = ""
    """In validation and evaluation: shown instead of an observation where the episode would end without an answer at
    the turn limit or at a budget of images or tokens; one more turn follows. Empty: the episode ends, as in
    training."""
    run_last_call: bool = False
    """Whether a call in the last turn is carried out and counted before the turn limit ends the episode; its result is
    not shown."""
    untrained_ends: tuple[str, ...] = ()
    """In GRPO: rollouts that end for one of these reasons (values of ``EndReason``) are scored and logged, but left out
    of the loss and of their group's mean and standard deviation."""

    @abstractmethod
    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        """The messages before the first turn, overview frames included."""

    @abstractmethod
    def parse(self, text: str) -> Action:
        """Read one turn of the model. Never raises, whatever the text."""

    @abstractmethod
    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        """Carry out a turn's request.

        Returns:
            The next observation, or None when the action ends the episode as illegal.

        Raises:
            VideoError: Frames can't be read; the episode ends with a tool error.
        """

    def is_last(self, view: EpisodeView) -> bool:
        """Return True if the turn just generated is the episode's last unless it answers: the ``max_turns``-th.

        The episode then ends with ``turn_limit``, after the turn's call was carried out under ``run_last_call``.
        """
        return len(view.turns) >= self.max_turns

    def drop_images(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Remove a message's images when they leave a ``latest_evidence`` context."""
        return tuple(part for part in parts if isinstance(part, str))

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        """Grade the answer from 0 to 1, multiple choice by the rule ``answer_match`` where the system has one.

        Raises:
            EndpointError: An answer couldn't be judged.
        """
        rule: MatchRule = getattr(self, "answer_match", "robust")
        return await grade_answer(trajectory.answer, qa, rule, graders.judge)

    @abstractmethod
    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        """The reward of a finished episode.

        Raises:
            EndpointError: An answer couldn't be judged.
        """
