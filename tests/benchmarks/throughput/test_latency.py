"""The benchmark of tool latency runs, and its floor decodes what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentic_video.video.open import open_video
from benchmarks.throughput.latency import Floor, Run, main, runs_of
from tests.video.video_files import SPECS, make


def test_runs_hold_no_packet_twice(tmp_path: Path) -> None:
    path = str(make(tmp_path / "a.mp4", SPECS["h264_b_frames"]))  # keyframes at 0, 12, 24, 36, 48
    with open_video(path) as reader:
        index = reader.index
    first, second = runs_of(index, [0, 4, 12])
    assert (first.entry, second) == (0, Run(12, 12, (12,))) and len(first.wanted) == 2
    floor = Floor(path, index, [0, 4, 12, 30, 59], 2)
    floor()
    floor()  # as often as one likes
    floor.close()
    assert floor.packets == sum(run.last - run.entry + 1 for run in runs_of(index, [0, 4, 12, 30, 59]))


@pytest.mark.slow
def test_a_quick_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "latency.json"
    assert main(["--videos", str(tmp_path / "videos"), "--quick", "--out", str(out)]) == 0
    figures = json.loads(out.read_text())["milliseconds"]["h264-180p-1min"]
    assert figures["zoom"]["frames"] == 16 and figures["overview"]["frames"] == 64
    assert figures["zoom"]["warm"] < figures["zoom"]["store"]
    assert "store/floor" in capsys.readouterr().out
