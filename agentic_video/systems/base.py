"""What a system is: one published way of watching a video.

A system says what the agent sees first, what it may say, what it may call, when it stops, and what reward it earns. It
holds nothing but its constants; the state of an episode is in the :class:`EpisodeView` that it is shown."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentic_video.graders.base import Graders
from agentic_video.tools.base import Video
from agentic_video.types.action import Action, Calls, Illegal
from agentic_video.types.message import Message, Observation, Part
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory, Turn

Context = Literal["all", "latest_evidence"]
"""What of an episode the agent has before it: everything, or all text with the latest images only."""


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
        if getattr(self, "overview", "") == "none":
            changes["overview"] = "uniform"
        return replace(self, **changes)  # type: ignore[type-var]

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        """Whether the answer is right, by the system's own rule (``answer_match``): from 0 to 1, as in evaluation.

        Unlike :meth:`score` it asks for nothing but the question and its answer.

        Raises:
            JudgeError: An answer couldn't be judged.
        """
        from agentic_video.graders.judge import grade_answer

        return await grade_answer(trajectory.answer, qa, getattr(self, "answer_match", "robust"), graders.judge)

    @abstractmethod
    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        """The reward of a finished episode.

        Raises:
            JudgeError: An answer couldn't be judged.
        """
