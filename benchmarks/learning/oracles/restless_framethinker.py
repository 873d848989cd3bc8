"""FrameThinker's oracle, which sometimes looks without need."""

from agentic_video.systems.framethinker import oracle as framethinker
from benchmarks.learning.oracles import restless

turns = restless(framethinker.turns)
