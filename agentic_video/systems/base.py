"""What a system is: one published way of watching a video.

A system says what the agent sees first, what it may say, what it may call, when it stops, and what reward it earns. It
holds nothing but its constants; the state of an episode is in the :class:`EpisodeView` that it is shown."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, cast

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

Grader = Literal["judge", "verifier"]
"""Whom a reward may ask (:class:`~agentic_video.graders.base.Graders`)."""

OPEN_ENDED: Mapping[Grader, str] = {"judge": "are open ended"}
"""What :meth:`System.needs` says of rows whose answers a judge reads."""

Context = Literal["all", "latest_evidence"]
"""What of an episode the agent has before it: everything, or all text with the latest images only."""


OverviewKind = Literal["uniform", "rate", "keyframes", "listed", "retrieval", "none"]
"""``uniform``: evenly spaced. ``rate``: so many a second, or uniform when that is too many. ``keyframes``: keyframes
close to evenly spaced ones, which are decoded many times faster. ``listed``: the times in the row's
``extra_info.overview_times``, from an external frame selector (VideoZoomer, Table 4). ``retrieval``: the frames that
match the question best. ``none``: no frames."""


@dataclass(frozen=True)
class ViewBudget:
    """How large the frames of a first view may be.

    Attributes:
        min_pixels: Least pixels of a shown frame.
        max_pixels: Most pixels of a shown frame.
        tokens: Visual tokens of all frames together, which bound their size too; None: as many as these come to.
    """

    min_pixels: int = 25_088
    max_pixels: int = 100_352
    tokens: int | None = None


class AsideBudgetError(Exception):
    """The model can't be asked that: the episode has had its asides, or it wouldn't fit. The message says which."""


@dataclass(frozen=True)
class EpisodeView:
    """What a system may look at when it decides about an episode.

    Attributes:
        turns: The finished turns.
        rollout_index: Number of the rollout within its group.
        asker: What :meth:`ask` asks; None where nobody is there to be asked.
    """

    qa: VideoQA
    video: Video
    turns: tuple[Turn, ...] = ()
    rollout_index: int = 0
    asker: Callable[[AsideRequest], Awaitable[Aside]] | None = field(default=None, compare=False, repr=False)

    async def ask(
        self, messages: Sequence[Message], *, max_tokens: int, stop: Sequence[str] = (), prefix: str = ""
    ) -> Aside:
        """Have the model itself say something beside the episode: as a sub-agent, a captioner, a verifier of itself.

        It is the model that plays, with the weights and the sampling that it plays with, in a conversation that knows
        nothing of the episode but what it is told. The episode's own context doesn't grow by it. For
        :meth:`System.observe` and :meth:`System.after`; several may be asked at a time (``asyncio.gather``), and one
        that nobody waits for when these return is given up. All are recorded with the turn, or the trajectory.

        Args:
            messages: Texts, frames and clips; together at most ``max_images`` frames.
            max_tokens: Most generated tokens. The run's limit of a turn, and what the prompt leaves of prompt and
                response together, bound it too.
            stop: Texts after which it stops; they stay in the reply.
            prefix: What the reply is made to start with; it is part of the aside's text.

        Returns:
            What was said, which is as little to be trusted as any turn: it may be empty, cut, or say anything.

        Raises:
            AsideBudgetError: ``max_asides`` were asked already, or the messages don't fit the run's limits or
                ``max_images``. Where a system lets it pass, the episode ends with ``token_budget``.
            EngineError: The engine failed; not to be caught: the episode ends with ``engine_error``.
            TypeError: The messages aren't all a ``Message``, or are one that isn't in a tuple or a list.
            ValueError: ``max_tokens`` isn't above 0, there is no message, or nobody can be asked here.
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
    """Most images that are before the agent at a time."""
    stop: tuple[str, ...]
    """Texts after which the engine stops; they stay in the output."""
    context: Context = "all"
    overview: OverviewKind = "uniform"
    """How the frames of the first view are chosen."""
    prompt: str = ""
    """Name of the template of the instructions, or a file."""
    option_format: str = "{letter}. {text}"
    """How an option is written; ``{letter}`` and ``{text}`` are filled in."""
    size_factor: int = 28
    """Sides of a shown frame are multiples of this."""
    answer_match: MatchRule | Literal["judge"] = "robust"
    """Rule for multiple-choice answers."""
    taught_by_team: bool = False
    """Whether its demonstrations are made by several teachers together (:mod:`agentic_video.synthesis.team`)."""
    max_asides: int = 16
    """Most asides of an episode (:meth:`EpisodeView.ask`)."""
    train_asides: bool = False
    """Whether asides are trained on: each is a sequence of its own, with the advantage of its episode."""
    observation_role: ObservationRole = "user"
    """Whose messages observations are: ``user``, or ``tool``, which the model's chat template must know."""
    reply_prefix: str = ""
    """What each turn is made to start with (``<think>``, say). The environment writes it: it is no generated text and
    no loss is taken on it, but a turn's text begins with it, for :meth:`parse` and for rewards."""
    forced_answer: str = ""
    """In validation and evaluation: what the agent is shown, in place of an observation, where its episode would end
    without an answer at the turn limit or at a budget of images or tokens. It then says one more turn. Empty: the
    episode ends there, as in training."""
    run_last_call: bool = False
    """Whether a call in the last turn is carried out, and counted for what it was, before the turn limit ends the
    episode. Nothing of it is shown, as no turn would see it."""
    untrained_ends: tuple[str, ...] = ()
    """In GRPO: rollouts that end for one of these reasons (values of ``EndReason``) are scored and logged, but left out
    of the loss and of their group's mean and standard deviation."""
    first_view_fields: ClassVar[tuple[str, ...]] = ("overview_frames",)
    """The fields that hold the number of frames of the first view."""

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
            What the agent is shown next, or None when the action ends the episode as illegal.

        Raises:
            VideoError: Frames can't be had; the episode ends with a tool error.
        """

    def is_last(self, view: EpisodeView) -> bool:
        """Whether the turn that was just said is the episode's last, unless it answers: the ``max_turns``-th.

        A system may have another bound beside it. The episode then ends with ``turn_limit``, after the turn's call was
        carried out where ``run_last_call`` says so.
        """
        return len(view.turns) >= self.max_turns

    async def after(self, trajectory: Trajectory, view: EpisodeView) -> Mapping[str, Any]:
        """What is to be found out about a finished episode, once: a verdict of the model about itself, say.

        It is called in training and in evaluation, before the episode is scored, and may :meth:`EpisodeView.ask`. It
        isn't called where the engine failed or nothing was said.

        Args:
            trajectory: The episode; what is returned becomes its ``notes``, for :meth:`score`.
            view: The same, with the video.

        Returns:
            Plain data by name: texts, finite numbers, true and false, null, and lists and dictionaries of these.
            Where it fails for want of frames or of room (``VideoError``, ``AsideBudgetError``), the notes are
            ``{"error": message}``.

        Raises:
            TypeError: From the episode: what it returned is no plain data.
        """
        return {}

    def drop_images(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """What is left of a message when its images leave a ``latest_evidence`` context."""
        return tuple(part for part in parts if isinstance(part, str))

    def retry(self, attempts: Sequence[Trajectory]) -> "System | None":
        """In evaluation: the system to play once more on the same question, or None to accept the last attempt."""
        return None

    def direct(self) -> "System":
        """In evaluation without tools: the same overview, and one turn, which must answer.

        Here for systems that are a dataclass with a ``prompt`` and read ``<answer>``; others write their own. A system
        without an overview gets one of evenly spaced frames.

        Raises:
            TypeError: The system has no such field.
        """
        changes: dict[str, Any] = {"max_turns": 1, "prompt": "direct"}
        if self.overview == "none":
            changes["overview"] = "uniform"
        return replace(self, **changes)  # type: ignore[type-var]

    @property
    def visual_token_side(self) -> int:
        """Pixels along each side of one visual token, for counts of tokens where no model says it itself."""
        return self.size_factor

    @property
    def view_budget(self) -> ViewBudget:
        """How large the frames of the plain baseline beside the system are.

        Here those of most papers' baselines. A system that bounds its own first view, by pixels of a frame or by tokens
        of all, has its baseline see frames of that size.
        """
        return ViewBudget()

    def with_frames(self, count: int) -> "System":
        """In sweeps: the system whose first view has so many frames; an episode may show as many more images.

        Here for systems with :attr:`first_view_fields`.

        Raises:
            ValueError: The system's first view has no such number.
        """
        names = self.first_view_fields
        known = {field.name for field in fields(self)}  # type: ignore[arg-type]
        if self.overview == "none" or not known.issuperset(names):
            raise ValueError(f"{self.name} has no such number of frames")
        more = max(0, count - max(getattr(self, name) for name in names))
        return replace(self, **dict.fromkeys(names, count), max_images=self.max_images + more)  # type: ignore[type-var]

    def first_view_counts(self) -> tuple[int, ...]:
        """The numbers of evenly spaced frames that rollouts begin with, the smallest first; none where none is fixed.

        The synthetic world keeps its events clear of these frames.
        """
        if self.overview not in ("uniform", "rate"):
            return ()
        return tuple(sorted({getattr(self, name) for name in self.first_view_fields if hasattr(self, name)}))

    def with_calls(self, count: int) -> "System":
        """In sweeps: the system with so many turns that call at most, and one that answers.

        Raises:
            ValueError: The system makes no calls.
        """
        return replace(self, max_turns=count + 1) if count else self.direct()  # type: ignore[type-var]

    async def demonstration_score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        """The score of an episode to imitate: :meth:`score` without what only training has.

        Raises:
            EndpointError: An answer couldn't be judged.
        """
        return await self.score(trajectory, qa, graders)

    def demonstration_fault(self, trajectory: Trajectory) -> str | None:
        """Why a right and well-formed episode is none to imitate, in a few words; None where it is one."""
        return None

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        """Whether the answer is right, by the system's own rule (``answer_match``): from 0 to 1, as in evaluation.

        Unlike :meth:`score` it asks for nothing but the question and its answer.

        Raises:
            EndpointError: An answer couldn't be judged.
        """
        return await grade_answer(trajectory.answer, qa, cast(MatchRule, self.answer_match), graders.judge)

    def needs(self, qa: VideoQA) -> Mapping[Grader, str]:
        """Whom :meth:`score` may ask about a question's episodes, each with what its rows are (``are open ended``).

        A run asks it of all rows before it starts: without a grader their groups would fail one after the other. It
        isn't asked of a subclass that has a ``score`` or a ``grade`` of its own, and not this. Here: nobody.

        Raises:
            RowError: The row lacks what the score is made of.
        """
        return {}

    def demonstration_needs(self, qa: VideoQA) -> Mapping[Grader, str]:
        """Whom :meth:`demonstration_score` may ask, as :meth:`needs` says it of :meth:`score`.

        Raises:
            RowError: The row lacks what that score is made of.
        """
        return self.needs(qa)

    @abstractmethod
    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        """The reward of a finished episode.

        Raises:
            EndpointError: An answer couldn't be judged.
        """
