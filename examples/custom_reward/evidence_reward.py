"""A custom reward for any system: right answers earn more, the fewer frames they took.

The function gets the finished episode, the row and the graders, and returns a ``Score``. Nothing else is needed: the
system, its tools and its grammar stay as they are.
"""

from agentic_video.graders.answer import match_choice
from agentic_video.graders.base import Graders
from agentic_video.types import Score, Trajectory, VideoQA


def few_frames(
    trajectory: Trajectory, row: VideoQA, graders: Graders, *, budget: int = 32, share: float = 0.5
) -> Score:
    """``right * (1 + share * (1 - frames / budget))``, frames beyond the budget counting as the budget.

    Args:
        trajectory: The finished episode.
        row: The question, multiple choice.
        graders: Unused here; ``await graders.judge.grade(...)`` asks a judge.
        budget: From this many frames on nothing is added.
        share: Most that is added to a right answer.
    """
    right = float(match_choice(trajectory.answer, row, "robust"))
    saved = 1.0 - min(len(trajectory.frames), budget) / budget
    terms = {"right": right, "saved": share * right * saved}
    return Score(reward=sum(terms.values()), acc=right, format=float(trajectory.answer is not None), terms=terms)


async def with_judge(trajectory: Trajectory, row: VideoQA, graders: Graders) -> Score:
    """The judge's grade of the answer alone; a coroutine, as it waits for the judge."""
    grade = 0.0
    if trajectory.answer is not None and graders.judge is not None:
        grade = await graders.judge.grade(row.question, row.answer, trajectory.answer)
    return Score(reward=grade, acc=grade, format=float(trajectory.answer is not None), terms={"judge": grade})
