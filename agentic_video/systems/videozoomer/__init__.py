"""VideoZoomer: a coarse overview, then zooms into stretches of the video at a rate that the agent chooses."""

from agentic_video.systems.videozoomer.reward import VideoZoomerWeights
from agentic_video.systems.videozoomer.system import VideoZoomer

__all__ = ["VideoZoomer", "VideoZoomerWeights"]
