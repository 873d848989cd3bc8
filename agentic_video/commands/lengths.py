"""Measure trajectories: tokens and calls.

    agentic-video lengths kept.jsonl outputs/videozoomer-eval/mlvu_dev/agent --out lengths.json

VideoZoomer draws both for its cold-start data (Figure 7). No model is asked.
"""

from agentic_video.synthesis.lengths import LengthOptions, measure_lengths, table


def run(options: LengthOptions) -> int:
    """Print the report; returns the exit status."""
    print(table(measure_lengths(options)))
    return 0
