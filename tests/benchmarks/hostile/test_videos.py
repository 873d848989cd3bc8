"""A small part of the hostile videos: counted, and gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hostile import videos
from benchmarks.hostile.run import main

MIB = 2**20


def test_a_file_is_the_same_each_time() -> None:
    made = [videos.make(0, number) for number in range(60)]
    assert made == [videos.make(0, number) for number in range(60)]
    assert len({kind for kind, _, _ in made}) >= 4
    assert made != [videos.make(1, number) for number in range(60)]


def test_no_file_breaks_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seed 3 has a stream of 16 reference pictures, one that grows, and tables that claim billions of samples."""
    out = tmp_path / "videos.jsonl"
    for count in (24, 64):  # the second goes on after the first
        capsys.readouterr()
        assert main(["videos", "--seed", "3", "--count", str(count), "--out", str(out)]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert result["files"] == 64 == sum(result["outcomes"].values())
    assert (result["exceptions"], result["processes_ended"], result["descriptors_left"]) == (0, 0, 0)
    assert result["peak_mib"] < 1024
    assert [json.loads(line)["first"] for line in out.read_text().splitlines()] == [0, 24]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["large", "many_samples"])
def test_what_costs_memory(tmp_path: Path, kind: str) -> None:
    numbers = [number for number in range(400) if videos.make(0, number)[0] == kind][:8]
    for number in numbers:
        _, name, data = videos.make(0, number)
        (tmp_path / name).write_bytes(data)
    part = videos.read_in_child(str(tmp_path), [kind] * len(numbers))
    assert part["count"] == len(numbers) and "code" not in part
    assert not any("raised" in outcome for outcome in part["outcomes"])
    assert part["peak"] < 1024 * MIB
