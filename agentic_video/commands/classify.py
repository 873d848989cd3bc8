"""Sort questions into VideoBrain's classes, and draw the SFT and RL sets by them.

    agentic-video classify --data rows.parquet --base http://base:8000/v1 --teacher http://teacher:8000/v1 --out DIR
    agentic-video classify --base-results eval/base --teacher-results eval/teacher --out DIR

The base model answers from the overview alone, the teacher may use the tools; a question's class follows from which of
them is right, and whether the teacher used tools (VideoBrain, section 3.2). The same command resumes where it was
killed.
"""

from agentic_video.commands.guard import run_job
from agentic_video.synthesis.classify import ClassifyOptions, classify


def run(options: ClassifyOptions) -> int:
    """Classify; returns the exit status, 1 when a row isn't classified or a set is empty."""
    return run_job(lambda: classify(options))
