"""Keep recorded episodes that are worth imitating, as records for SFT: right, and looked at the right place.

    agentic-video filter outputs/longvt-cluster/run-001 --out data/rollouts.jsonl

An episode is kept when its answer is right and its last look overlaps a gold window of its row (``windows``) by 0.3 and
more, as for LongVT's RFT. No model is asked.
"""

from agentic_video.synthesis.filter import FilterOptions, filter_episodes


def run(options: FilterOptions) -> int:
    """Filter; returns the exit status, 1 when no episode is kept."""
    found = filter_episodes(options)
    print(
        f"{found.episodes:,} episodes, {found.kept:,} kept, on {found.questions:,} questions, written to {options.out}"
    )
    for reason, count in sorted(found.left_out.items()):
        print(f"  left out: {count:,} {reason}")
    return 0 if found.kept else 1
