"""A reward that asks a judge about every episode."""

from agentic_video.graders.base import Graders
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory


async def judged(trajectory: Trajectory, row: VideoQA, graders: Graders) -> Score:
    """The judge's grade of the last thing that was said."""
    said = trajectory.turns[-1].text if trajectory.turns else ""
    assert graders.judge is not None
    grade = await graders.judge.grade(row.question, row.answer, said)
    return Score(reward=grade, acc=grade, format=1.0)
