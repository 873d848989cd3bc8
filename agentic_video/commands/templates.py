"""Count which of FrameThinker's reasoning templates trajectories follow.

    agentic-video templates outputs/framethinker-laptop/run-001 records.jsonl --out templates.json

The five templates are those of the paper's process-supervised data (appendix F.2); the sequence of an episode's actions
decides. No model is asked.
"""

from agentic_video.synthesis.inputs import CountOptions
from agentic_video.synthesis.templates import count_templates, templates_text


def run(options: CountOptions) -> int:
    """Print the report; returns the exit status."""
    print(templates_text(options.counted(count_templates)))
    return 0
