"""Rewards that make a run collapse, each in a known way."""

from agentic_video.graders.answer import match_choice
from agentic_video.graders.base import Graders
from agentic_video.types import Score, Trajectory, VideoQA


def _score(reward: float, trajectory: Trajectory, row: VideoQA) -> Score:
    right = float(match_choice(trajectory.answer, row, "robust"))
    return Score(reward=reward, acc=right, format=float(trajectory.answer is not None))


def no_calls(trajectory: Trajectory, row: VideoQA, graders: Graders) -> Score:
    """Pays whoever doesn't look."""
    return _score(float(trajectory.tool_calls + trajectory.illegal_calls == 0), trajectory, row)


def useless_calls(trajectory: Trajectory, row: VideoQA, graders: Graders) -> Score:
    """Pays for calls after which the answer is wrong all the same."""
    return _score(float(trajectory.tool_calls * (not match_choice(trajectory.answer, row, "robust"))), trajectory, row)


def nothing(trajectory: Trajectory, row: VideoQA, graders: Graders) -> Score:
    """Pays all the same."""
    return _score(0.5, trajectory, row)
