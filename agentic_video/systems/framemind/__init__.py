"""FrameMind: rollouts of a group begin with different views of the video, then look again with two tools."""

from agentic_video.systems.framemind.ladder import FrameSampling
from agentic_video.systems.framemind.reward import FrameMindWeights
from agentic_video.systems.framemind.system import FrameMind

__all__ = ["FrameMind", "FrameMindWeights", "FrameSampling"]
