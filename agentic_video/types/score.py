"""Score of a trajectory."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Score:
    """Reward of a trajectory, and its parts.

    Attributes:
        reward: The scalar that GRPO sees.
        acc: 1.0 for a right answer, 0.0 for a wrong one (a fraction where a judge grades).
        format: 1.0 when every turn follows the system's grammar.
        terms: The reward's terms by name; they add up to ``reward`` unless the system says otherwise.
        turns: Rewards of single turns, in order, for ``agentic_video.credit: turn``; the rest is the last turn's.
    """

    reward: float
    acc: float
    format: float
    terms: Mapping[str, float] = field(default_factory=dict)
    turns: tuple[float, ...] = ()
