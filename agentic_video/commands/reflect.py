"""Record a teacher's corrections: it names the flaw of a failed episode, and does better.

    agentic-video reflect --system videozoomer --rollouts RUN --teacher http://host:8000/v1 --out DIR

A recorded episode that answered wrong or not at all is replayed up to its flawed call; the teacher continues from
there. What ends right is kept: the flawed turns as context, the correction to learn from. The same command resumes
where it was killed. ``key=value`` arguments are Hydra overrides of the recipe's config.
"""

from agentic_video.commands.guard import run_job
from agentic_video.synthesis.reflect import ReflectOptions, reflect


def run(options: ReflectOptions) -> int:
    """Reflect; returns the exit status, 1 when a failure couldn't be corrected."""
    return run_job(lambda: reflect(options))
