"""Questions whose groups failed in a run and were replaced, from ``failed_*.jsonl`` beside its episodes."""

import json
from collections import Counter
from pathlib import Path

FAILED = "failed_"
"""Begins the name of a step's file."""
SHOWN = 5


def failures_text(folder: Path) -> list[str]:
    """A line for each video that failed, most often first, and one for those left out; a damaged line counts too."""
    counts: Counter[str] = Counter()
    last: dict[str, str] = {}
    for file in sorted(folder.glob(f"{FAILED}*.jsonl")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                failure = json.loads(line)
                video = str(failure["video"])
                last[video] = f"row {failure['row']}: {failure['error']}"
            except (ValueError, TypeError, KeyError):
                video = "unknown"
            counts[video] += 1
    lines = [f"{video}: {count}, the last of {last.get(video, 'see log.txt')}" for video, count in counts.most_common()]
    more = [f"{len(lines) - SHOWN} more videos"] if len(lines) > SHOWN else []
    return lines[:SHOWN] + more
