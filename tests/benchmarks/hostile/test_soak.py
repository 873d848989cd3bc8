"""Many episodes, in small: rounds through a real worker and a real store of a node, gone on with where they stopped."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.hostile import soak


@pytest.mark.ray
@pytest.mark.slow
def test_rounds_leave_nothing_behind(tmp_path: Path) -> None:
    out = tmp_path / "soak.jsonl"
    command = [sys.executable, "-m", "benchmarks.hostile.run", "soak", "--seed", "0", "--out", str(out)]
    for count in (3 * soak.ROUND, 4 * soak.ROUND):  # the second goes on, in a process of its own
        subprocess.run([*command, "--count", str(count)], check=True, capture_output=True, timeout=400)
    parts = [json.loads(line) for line in out.read_text().splitlines()]
    assert [part["episodes"] for part in parts] == [soak.ROUND] * 4 and [part["start"] for part in parts] == [
        0,
        0,
        0,
        3,
    ]
    assert {end for part in parts for end in part["ends"]} <= {"played", "VideoError"}
    for who in ("worker", "store"):
        second, third = (parts[number][who] for number in (1, 2))
        # Ray opens and closes connections of its own; an episode that left something behind would add a round's worth,
        # one of a damaged video (4 of 16) a quarter of that.
        some = soak.ROUND // 5
        assert third["threads"] <= second["threads"] + some and third["descriptors"] <= second["descriptors"] + some
        assert third["bytes"] < second["bytes"] + 64 * 2**20


def test_what_rounds_held_by_hand() -> None:
    def part(start: int, held: int, **ends: int) -> dict[str, object]:
        process = {"bytes": held << 20, "threads": 3, "descriptors": 4}
        return {"start": start, "episodes": sum(ends.values()), "ends": ends, "worker": process, "store": process}

    rounds = [part(0, 10, played=2), part(0, 11, played=1, VideoError=1), part(0, 12, played=2), part(3, 9, played=2)]
    found = soak.summary(rounds)
    assert found["episodes"] == 8 and found["ends"] == {"played": 7, "VideoError": 1}
    # of each process's life: after a tenth of its rounds, in the middle, at the end
    assert found["held"]["store"]["mib"] == [[10, 11, 12], [9, 9, 9]]
    assert found["held"]["worker"]["threads"] == [[3, 3, 3], [3, 3, 3]]
