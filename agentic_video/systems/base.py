"""What a system is: one published way of watching a video.

A system says what the agent sees first, what it may say, what it may call, when it stops and what it is paid for.
It holds nothing but its constants; the state of an episode is in the :class:`EpisodeView` that it is shown.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from agentic_video.data.schema import VideoQA
from agentic_video.tools.base import Video
from agentic_video.video.frames import Frame

if TYPE_CHECKING:
    from agentic_video.rewards.judge import Judge
    from agentic_video.rewards.witness import Witness
    from agentic_video.rollout.trajectory import Trajectory, Turn
    from agentic_video.video.store import FrameSource

Context = Literal["all", "latest_evidence"]
"""What of an episode the agent has before it: everything, or all text with the latest images only."""

Part = str | Frame
"""A piece of a message: text, or one image."""


@dataclass(frozen=True)
class Message:
    """One chat message of text and images in the order in which they are shown."""

    role: Literal["system", "user"]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class ToolCall:
    """A request for a tool: its name and its arguments as the model wrote them (not checked yet)."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Calls:
    """A turn that asks for tools."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True)
class Answer:
    """A turn that answers the question."""

    text: str


@dataclass(frozen=True)
class Illegal:
    """A turn that is neither: ``reason`` says why."""

    reason: str


Action = Calls | Answer | Illegal


@dataclass(frozen=True)
class Observation:
    """What the agent is shown after a turn.

    Attributes:
        parts: Text and images in order, without the chat template's wrapping.
        legal_calls: How many of the turn's calls were carried out.
        illegal_calls: How many were refused.
    """

    parts: tuple[Part, ...]
    legal_calls: int = 0
    illegal_calls: int = 0

    @property
    def frames(self) -> tuple[Frame, ...]:
        return tuple(part for part in self.parts if not isinstance(part, str))


@dataclass(frozen=True)
class EpisodeView:
    """What a system may look at when it decides about an episode.

    Attributes:
        turns: The finished turns.
        rollout_index: Number of the rollout within its group.
    """

    qa: VideoQA
    video: Video
    turns: tuple["Turn", ...] = ()
    rollout_index: int = 0


@dataclass(frozen=True)
class Score:
    """What a trajectory earns.

    Attributes:
        reward: The scalar that GRPO sees.
        acc: 1.0 for a right answer, 0.0 for a wrong one (a fraction where a judge grades).
        format: 1.0 when every turn follows the system's grammar.
        terms: The reward's terms by name; they add up to ``reward`` unless the system says otherwise.
    """

    reward: float
    acc: float
    format: float
    terms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Graders:
    """Whom a reward may ask, beside the trajectory itself.

    Attributes:
        judge: Grades an answer by its text.
        witness: A vision-language model that is shown frames and asked.
        source: Frames by reference, for the witness.
    """

    judge: "Judge | None" = None
    witness: "Witness | None" = None
    source: "FrameSource | None" = None


class System(ABC):
    """One way of watching a video. Subclasses are frozen dataclasses whose fields are the config keys."""

    name: str
    max_turns: int
    max_images: int
    """Most images that are before the agent at a time."""
    stop: tuple[str, ...]
    """Texts after which the engine stops; they stay in the output."""
    context: Context = "all"

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

    def fade(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """What is left of a message when its images leave a ``latest_evidence`` context."""
        return tuple(part for part in parts if isinstance(part, str))

    def retry(self, attempts: Sequence["Trajectory"]) -> "System | None":
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
        if getattr(self, "overview", "") == "none":
            changes["overview"] = "uniform"
        return replace(self, **changes)  # type: ignore[type-var]

    async def grade(self, trajectory: "Trajectory", qa: VideoQA, graders: Graders) -> float:
        """Whether the answer is right, by the system's own rule (``answer_match``): from 0 to 1, as in evaluation.

        Unlike :meth:`score` it asks for nothing but the question and its answer.

        Raises:
            JudgeError: An answer couldn't be judged.
        """
        from agentic_video.rewards.judge import grade_answer

        return await grade_answer(trajectory.answer, qa, getattr(self, "answer_match", "robust"), graders.judge)

    @abstractmethod
    async def score(self, trajectory: "Trajectory", qa: VideoQA, graders: Graders) -> Score:
        """The reward of a finished episode.

        Raises:
            JudgeError: An answer couldn't be judged.
        """


def text_of(parts: Sequence[Part]) -> str:
    """The text of a message, an image written as ``<image>``."""
    return "".join(part if isinstance(part, str) else "<image>" for part in parts)
