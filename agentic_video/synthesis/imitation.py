"""Episodes to imitate: optional methods of a system about its demonstrations, with their defaults."""

from agentic_video.graders.base import Graders
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
