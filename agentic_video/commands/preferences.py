"""Label trajectories desirable or undesirable, for KTO (EVA, sections 3.2 and 4.1).

    agentic-video preferences --records outputs/eva-cluster/run-001 --judge http://judge:8000/v1 --out DIR
    agentic-video preferences --system eva --data rows.parquet --teacher http://model:8000/v1 --samples 4 \\
        --judge http://judge:8000/v1 --out DIR

Right answers that rest on what was seen are desirable; wrong ones, and guesses, are not. A judge reads each trajectory
and decides whether it is a guess. The same command resumes where it was killed.
"""

from agentic_video.commands.guard import run_job
from agentic_video.synthesis.preferences import PreferenceOptions, label


def run(options: PreferenceOptions) -> int:
    """Label; returns the exit status, 1 when an episode couldn't be judged or a kind is missing."""
    return run_job(lambda: label(options))
