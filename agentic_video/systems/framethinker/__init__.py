"""FrameThinker: a sparse scan, then looks at stretches of the video; thoughts and actions must agree."""

from agentic_video.systems.framethinker.consistency import ConsistencyRules
from agentic_video.systems.framethinker.reward import FrameThinkerWeights
from agentic_video.systems.framethinker.system import FrameThinker, GuardRules

__all__ = ["ConsistencyRules", "FrameThinker", "FrameThinkerWeights", "GuardRules"]
