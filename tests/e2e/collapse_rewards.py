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


def many_calls(trajectory: Trajectory, row: VideoQA, graders: Graders) -> Score:
    """Pays for each call, whatever the answer."""
    return _score(float(trajectory.tool_calls), trajectory, row)


def refused_calls(trajectory: Trajectory, row: VideoQA, graders: Graders) -> Score:
    """Pays for calls that are refused."""
    return _score(float(trajectory.illegal_calls), trajectory, row)


def many_words(trajectory: Trajectory, row: VideoQA, graders: Graders) -> Score:
    """Pays for each token."""
    return _score(sum(turn.num_tokens for turn in trajectory.turns) / 100, trajectory, row)
