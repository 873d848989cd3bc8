"""EVA: plans before it sees anything, then selects frames: where, how many and how large."""

from agentic_video.systems.eva.reward import EvaWeights
from agentic_video.systems.eva.system import Eva

__all__ = ["Eva", "EvaWeights"]
