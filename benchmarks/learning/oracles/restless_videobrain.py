"""VideoBrain's oracle, which sometimes looks without need."""

from agentic_video.systems.videobrain import oracle as videobrain
from benchmarks.learning.oracles import restless

turns = restless(videobrain.turns)
