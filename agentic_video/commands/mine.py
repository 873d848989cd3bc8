"""Collect the questions at which a run's agent fails, from its recorded episodes.

    agentic-video mine outputs/eva-cluster/run-001 --below 0.5 --out mined.jsonl

Each question is one row, which GRPO reads as it is; ``extra_info.mined`` has the agent's accuracy and its wrong
answers. ``agentic-video enhance`` shows them to a teacher. No model is asked.
"""

from agentic_video.synthesis.mine import MineOptions, mine


def run(options: MineOptions) -> int:
    """Mine; returns the exit status, 1 when no question is failed."""
    mined = mine(options)
    rows = mined.written
    print(f"{mined.episodes:,} episodes, {mined.failed:,} questions failed, {len(rows):,} written to {options.out}")
    for reason, count in sorted(mined.left_out.items()):
        print(f"  left out: {count:,} {reason}")
    if rows:
        print(f"  mean accuracy of those written: {100 * sum(row.accuracy for row in rows) / len(rows):.1f} %")
    return 0 if rows else 1
