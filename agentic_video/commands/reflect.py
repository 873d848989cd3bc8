"""Record a teacher's corrections: it names the flaw of a failed episode, and does better.

    agentic-video reflect --system videozoomer --rollouts RUN --teacher http://host:8000/v1 --out DIR

A recorded episode that answered wrong or not at all is replayed up to its flawed call; the teacher continues from
there. What ends right is kept: the flawed turns as context, the correction to learn from. The same command resumes
where it was killed. ``key=value`` arguments are Hydra overrides of the recipe's config.
"""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import UseAppendAction

from agentic_video.commands.teachers import TeacherArguments, run_job
from agentic_video.synthesis.reflect import Kept, Loss, ReflectOptions, reflect
from agentic_video.utils.option_types import Fraction, ModelName


@dataclass(frozen=True, kw_only=True)
class ReflectArguments(TeacherArguments):
    """Failures, and their corrections."""

    teacher: ModelName
    """address of an OpenAI-compatible server (http://host:8000/v1), or folder of a checkpoint"""
    rollouts: UseAppendAction[tuple[Path, ...]]
    """file of trajectory records, or folder of a run or an evaluation; may be repeated"""
    min_acc: Fraction = 1.0
    """an answer graded less than this is a failure"""
    keep: Kept = ReflectOptions.keep
    """context of a correction: the episode up to the turn that the teacher finds flawed, or all but its answer"""
    loss: Loss = ReflectOptions.loss
    """turns with loss in SFT: the correction's, or those before it too"""


def run(options: ReflectArguments) -> int:
    """Reflect; returns the exit status, 1 when a failure couldn't be corrected."""
    return run_job(
        lambda: reflect(
            ReflectOptions(
                job=options.job,
                teacher=options.player(options.teacher, options.teacher_name),
                rollouts=options.rollouts,
                min_acc=options.min_acc,
                keep=options.keep,
                loss=options.loss,
            )
        )
    )
