"""Token budgets of what is evaluated."""

from agentic_video.evaluation.baseline import Baseline
from agentic_video.evaluation.plan import fit_limits
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.videozoomer.system import VideoZoomer


def test_budgets_of_a_single_turn_hold_many_frames() -> None:
    limits = TokenLimits(prompt=8_000, response=8_000, turn=4_000)
    assert fit_limits(VideoZoomer(), limits) == limits
    assert fit_limits(Baseline(4), limits) == TokenLimits(prompt=13_952, response=2_048, turn=2_048)
