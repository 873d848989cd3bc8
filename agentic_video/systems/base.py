"""What a system is: one published way of watching a video.

A system says what the agent sees first, what it may say, what it may call, when it stops, and what reward it earns. It
holds nothing but its constants; the state of an episode is in the :class:`EpisodeView` that it is shown."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast

from agentic_video.graders.answer import MatchRule
from agentic_video.graders.base import Graders
from agentic_video.graders.judge import grade_answer
from agentic_video.tools.base import Video
from agentic_video.types.action import Action, Calls, Illegal
from agentic_video.types.message import Message, Observation, Part
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory, Turn

Context = Literal["all", "latest_evidence"]
"""What of an episode the agent has before it: everything, or all text with the latest images only."""


OverviewKind = Literal["uniform", "rate", "keyframes", "listed", "retrieval", "none"]
"""``uniform``: evenly spaced. ``rate``: so many a second, or uniform when that is too many. ``keyframes``: keyframes
close to evenly spaced ones, which are decoded many times faster. ``listed``: the times in the row's
``extra_info.overview_times``, from an external frame selector (VideoZoomer, Table 4). ``retrieval``: the frames that
match the question best. ``none``: no frames."""


@dataclass(frozen=True)
class EpisodeView:
    """What a system may look at when it decides about an episode.

    Attributes:
        turns: The finished turns.
        rollout_index: Number of the rollout within its group.
    """

    qa: VideoQA
    video: Video
    turns: tuple[Turn, ...] = ()
    rollout_index: int = 0


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
            What the agent is shown next, or None when the action ends the episode as illegal.

        Raises:
            VideoError: Frames can't be had; the episode ends with a tool error.
        """

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

    def with_frames(self, count: int) -> "System":
        """In sweeps: the system whose first view has so many frames; an episode may show as many more images.

        Here for systems with a field ``overview_frames``.

        Raises:
            ValueError: The system's first view has no such number.
        """
        return self._with_first_view(count, "overview_frames")

    def _with_first_view(self, count: int, *names: str) -> "System":
        """The system with another number of frames in the fields that hold it."""
        known = {field.name for field in fields(self)}  # type: ignore[arg-type]
        if self.overview == "none" or not known.issuperset(names):
            raise ValueError(f"{self.name} has no such number of frames")
        more = max(0, count - max(getattr(self, name) for name in names))
        return replace(self, **dict.fromkeys(names, count), max_images=self.max_images + more)  # type: ignore[type-var]

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

    @abstractmethod
    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        """The reward of a finished episode.

        Raises:
            EndpointError: An answer couldn't be judged.
        """
