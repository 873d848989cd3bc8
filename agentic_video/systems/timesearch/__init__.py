"""TimeSearch-R: searches the video for frames by text and time, and is paid for having found enough to answer from."""

from agentic_video.systems.timesearch.reward import TimeSearchWeights
from agentic_video.systems.timesearch.system import TimeSearch

__all__ = ["TimeSearch", "TimeSearchWeights"]
