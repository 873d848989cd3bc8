"""FrameThinker's oracle, which sometimes looks without need."""

from agentic_video.toyworld.oracles import framethinker
from benchmarks.learning.oracles import restless

turns = restless(framethinker.turns)
