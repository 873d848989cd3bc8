"""VideoBrain: a uniform overview, then more frames by place or by content, if needed at all."""

from agentic_video.systems.videobrain.reward import VideoBrainWeights
from agentic_video.systems.videobrain.system import VideoBrain

__all__ = ["VideoBrain", "VideoBrainWeights"]
