"""ParaVT: several stretches of the video at once, each seen by a sub-agent that tells the agent what it shows."""

from agentic_video.systems.paravt.reward import ParaVTWeights
from agentic_video.systems.paravt.system import ParaVT

__all__ = ["ParaVT", "ParaVTWeights"]
