"""LongVT: skims the whole video, then crops stretches of it; it is paid for the last crop's overlap with the evidence."""

from agentic_video.systems.longvt.reward import LongVTWeights
from agentic_video.systems.longvt.system import LongVT

__all__ = ["LongVT", "LongVTWeights"]
