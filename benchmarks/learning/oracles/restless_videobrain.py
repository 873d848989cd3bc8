"""VideoBrain's oracle, which sometimes looks without need."""

from agentic_video.toyworld.oracles import videobrain
from benchmarks.learning.oracles import restless

turns = restless(videobrain.turns)
