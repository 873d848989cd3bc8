"""Check of episodes to learn from: right by the system's own rule, legal, well formed and consistent.

A system may have methods of its own about demonstrations: ``demonstration_score``, ``demonstration_fault``, and
``taught_by_team``.
"""

from dataclasses import dataclass

from agentic_video.graders.base import Graders
from agentic_video.synthesis.jobs import KEPT
from agentic_video.systems.base import System
from agentic_video.systems.reward_function import limited, plain_score
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory


async def demonstration_score(system: System, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
    """The system's ``demonstration_score``, without the parts that only training has; by default its ``score``."""
    name = "demonstration_score" if hasattr(system, "demonstration_score") else "score"
    score = await limited(getattr(system, name), trajectory, qa, graders)
    return plain_score(f"{type(system).__name__}.{name}", score)


def demonstration_fault(system: System, trajectory: Trajectory) -> str | None:
    """Return why a right and well-formed episode shouldn't be imitated (``demonstration_fault``), or None."""
    find = getattr(system, "demonstration_fault", None)
    return find(trajectory) if find else None


def taught_by_team(system: System) -> bool:
    """Return True if several teachers make the demonstrations together (:mod:`agentic_video.synthesis.team`)."""
    return bool(getattr(system, "taught_by_team", False))


@dataclass(frozen=True)
class Verdict:
    """Result of a check."""

    reason: str  # kept, or why not in a few words
    rewards: dict[str, float]  # acc and format, for the record


async def verify(
    system: System, trajectory: Trajectory, qa: VideoQA, graders: Graders, least_acc: float = 1.0
) -> Verdict:
    """Check an episode; the first reason against it counts. ``least_acc`` is the least accuracy of a right answer."""
    score = await demonstration_score(system, trajectory, qa, graders)
    fault = demonstration_fault(system, trajectory)
    if trajectory.answer is None:
        reason = f"no answer: {trajectory.end.value}"
    elif trajectory.illegal_calls:
        reason = "illegal call"
    elif score.format != 1.0:  # before the answer: VideoBrain's score counts none of another form as right
        reason = "format"
    elif score.acc < least_acc:
        reason = "wrong answer"
    else:
        reason = fault or KEPT
    return Verdict(reason, {"acc": score.acc, "format": score.format})
