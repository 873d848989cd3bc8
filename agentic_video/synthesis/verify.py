"""Check of episodes to learn from: right by the system's own rule, legal, well formed and consistent."""

from dataclasses import dataclass

from agentic_video.graders.base import Graders
from agentic_video.synthesis.imitation import demonstration_fault, demonstration_score
from agentic_video.synthesis.jobs import KEPT
from agentic_video.systems.base import System
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory


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
