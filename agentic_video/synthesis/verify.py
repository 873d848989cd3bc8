"""Which episodes are worth learning from: right by the system's own rule, legal, well formed and consistent."""

from dataclasses import dataclass, replace

from agentic_video.graders.base import Graders
from agentic_video.synthesis.jobs import KEPT
from agentic_video.systems.base import System
from agentic_video.systems.framethinker.consistency import ConsistencyRules, failed_checks
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory


@dataclass(frozen=True)
class Verdict:
    """What a check found.

    Attributes:
        reason: ``kept``, or in a few words why not.
        rewards: ``acc`` and ``format``, for the record.
    """

    reason: str
    rewards: dict[str, float]


async def verify(
    system: System, trajectory: Trajectory, qa: VideoQA, graders: Graders, least_acc: float = 1.0
) -> Verdict:
    """Check an episode; of several reasons against it the first in this order counts.

    An answer is graded by :meth:`System.grade`, without EVA's self-verification, for which there is no policy yet.

    Args:
        least_acc: An answer of at least this accuracy is right; below 1 where answers are graded by degrees.

    Raises:
        JudgeError: An answer couldn't be judged.
    """
    if getattr(system, "csv", False):
        system = replace(system, csv=False)  # type: ignore[type-var]
    # VideoBrain's reward needs a row's class, accuracy and format don't: rows may be classified later.
    score = await system.score(trajectory, replace(qa, extra={"class": "adaptive", **qa.extra}), graders)
    rules = getattr(system, "ccv", None)
    failed = failed_checks(trajectory, rules) if isinstance(rules, ConsistencyRules) else ()
    if trajectory.answer is None:
        reason = f"no answer: {trajectory.end.value}"
    elif trajectory.illegal_calls:
        reason = "illegal call"
    elif score.format != 1.0:  # before the answer: VideoBrain's score counts none of another form as right
        reason = "format"
    elif score.acc < least_acc:
        reason = "wrong answer"
    else:
        reason = f"inconsistent: {failed[0]}" if failed else KEPT
    return Verdict(reason, {"acc": score.acc, "format": score.format})
