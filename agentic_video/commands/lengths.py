"""Measure trajectories: tokens and calls.

    agentic-video lengths kept.jsonl outputs/videozoomer-eval/mlvu_dev/agent --out lengths.json

VideoZoomer draws both for its cold-start data (Figure 7). No model is asked.
"""

from agentic_video.synthesis.inputs import CountOptions
from agentic_video.synthesis.lengths import lengths_text, summarise


def run(options: CountOptions) -> int:
    """Print the report; returns the exit status."""
    print(lengths_text(options.counted(summarise)))
    return 0
