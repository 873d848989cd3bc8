"""Measure trajectories: tokens and calls.

    agentic-video lengths kept.jsonl outputs/videozoomer-eval/mlvu_dev/agent --out lengths.json

VideoZoomer draws both for its cold-start data (Figure 7). No model is asked.
"""

from agentic_video.synthesis.lengths import LengthOptions, lengths_text, measure_lengths


def run(options: LengthOptions) -> int:
    """Print the report; returns the exit status."""
    print(lengths_text(measure_lengths(options)))
    return 0
