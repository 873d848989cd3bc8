"""LongVT: skims the whole video, then crops stretches of it, and is paid for cropping the evidence."""

from agentic_video.systems.longvt.reward import LongVTWeights
from agentic_video.systems.longvt.system import LongVT

__all__ = ["LongVT", "LongVTWeights"]
