"""Have a teacher write questions about new videos, like those at which the agent fails.

    agentic-video enhance --failures mined.jsonl --videos new_videos/ --existing train.parquet \\
        --teacher http://teacher:8000/v1 --out DIR

EVA's data-enhanced GRPO (section 3.2): failures are the teacher's examples, the questions are open ended and their
answers short. ``rows.jsonl`` is what GRPO reads. The same command resumes where it was killed.
"""

from agentic_video.commands.guard import run_job
from agentic_video.synthesis.enhance import EnhanceOptions, enhance


def run(options: EnhanceOptions) -> int:
    """Enhance; returns the exit status, 1 when a video failed or no row came out."""
    return run_job(lambda: enhance(options))
