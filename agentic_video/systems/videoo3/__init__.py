"""Video-o3: an overview of the whole video, then closer looks at the segments that may hold a clue."""

from agentic_video.systems.videoo3.reward import VideoO3Weights
from agentic_video.systems.videoo3.system import CropTokens, VideoO3

__all__ = ["CropTokens", "VideoO3", "VideoO3Weights"]
