"""The journal, and a real evaluation that is killed and goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentic_video.cli import main
from agentic_video.datasets.rows import load_rows
from agentic_video.evaluation.results import Failure, append, claim_folder, distinct, failures, finished, journal
from agentic_video.evaluation.shards import Follower
from agentic_video.toyworld.questions import World
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory
from agentic_video.utils.errors import SetupError
from tests.evaluation.conftest import RECIPES


def record(name: str) -> Record:
    qa = VideoQA(name, "/v.mp4", "which?", "A", options=("x", "y"))
    return Record(qa, Trajectory(name, "s", (), (), EndReason.TURN_LIMIT), {"acc": 0.0})


def ids(folder: Path) -> list[str]:
    return [one.qa.id for one in finished(folder)[0]]


def test_a_torn_line_is_cut_off_and_the_rest_kept(tmp_path: Path) -> None:
    with journal(tmp_path, 0) as file:
        append(file, record("a"))
        append(file, record("b"))
    path = tmp_path / "episodes-000.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 3])
    assert ids(tmp_path) == ["a", "b"]
    assert len(finished(tmp_path)[1]) == 1
    with journal(tmp_path, 0) as file:
        append(file, record("c"))
    assert ids(tmp_path) == ["a", "b", "c"]
    assert finished(tmp_path)[1] == []
    assert path.read_bytes().startswith(whole)


def test_a_journal_of_nothing_but_a_torn_line(tmp_path: Path) -> None:
    (tmp_path / "episodes-000.jsonl").write_text('{"version": 1, "vid')
    with journal(tmp_path, 0) as file:
        append(file, record("a"))
    assert ids(tmp_path) == ["a"]


def test_a_shard_is_played_by_one_process(tmp_path: Path) -> None:
    with journal(tmp_path, 0), pytest.raises(SetupError, match="another process"), journal(tmp_path, 0):
        pass
    with journal(tmp_path, 0), journal(tmp_path, 1):
        pass


def test_a_question_in_two_journals_counts_once(tmp_path: Path) -> None:
    for shard in (0, 1):
        with journal(tmp_path, shard) as file:
            append(file, record("a"))
    assert ids(tmp_path) == ["a"]


def test_a_folder_belongs_to_its_settings(tmp_path: Path) -> None:
    settings = {"model": "m", "system": {"max_turns": 5, "stop": ("x",)}}
    claim_folder(tmp_path / "out", settings)
    claim_folder(tmp_path / "out", settings)
    with pytest.raises(SetupError, match=r"system.max_turns = 5, and now it is 3"):
        claim_folder(tmp_path / "out", {**settings, "system": {"max_turns": 3, "stop": ("x",)}})


def test_ids_are_unique_within_a_data_source() -> None:
    rows = [VideoQA("1", "v", "?", "a", data_source=source) for source in ("x", "y", "x")]
    kept, problems = distinct(rows)
    assert [(qa.data_source, qa.id) for qa in kept] == [("x", "1"), ("y", "1")]
    assert problems == ["row 1 of x: field 'id' was there before; ids must be unique"]


def test_following_other_processes_journals(tmp_path: Path) -> None:
    with journal(tmp_path, 0) as file:
        append(file, record("before"))
    follower = Follower(tmp_path)
    assert follower.new() == []
    with journal(tmp_path, 1) as file:
        append(file, record("a"))
        file.write('{"version": 1, "vi')
        file.flush()
        found = follower.new()
    assert [one.qa.id for one in found if isinstance(one, Record)] == ["a"]
    (tmp_path / "failures-001.jsonl").write_text(json.dumps({"data_source": "s", "id": "f", "error": "e"}) + "\n")
    assert follower.new() == [Failure(("s", "f"), "e")]
    assert failures(tmp_path) == [Failure(("s", "f"), "e")]
    assert follower.new() == []


def command(checkpoint: Path, data: Path, out: Path, *more: str) -> list[str]:
    return [
        "eval", "--recipe", str(RECIPES / "videozoomer"), "--model",
        str(checkpoint), "--data", str(data), "--out", str(out), *more,
    ]  # fmt: skip


def lines(out: Path) -> list[dict[str, Any]]:
    whole = [line for file in out.glob("episodes-*.jsonl") for line in file.read_bytes().split(b"\n")[:-1]]
    return [json.loads(line) for line in whole]


@pytest.mark.slow
def test_killed_and_started_again(checkpoint: Path, small_world: World, tmp_path: Path, capsys: Any) -> None:
    data, out = Path(small_world.heldout), tmp_path / "out"
    slow = command(checkpoint, data, out, "--concurrency", "1")
    python = [sys.executable, "-m", "agentic_video.cli"]
    with subprocess.Popen([*python, *slow], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 300
        while len(lines(out)) < 3 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    journal_file = out / "episodes-000.jsonl"
    before = journal_file.read_bytes()
    rows = load_rows([data])[0]
    assert 3 <= len(lines(out)) < len(rows), "it was killed in the middle"
    journal_file.write_bytes(before + b'{"version": 1, "video_qa": {"id"')

    again = subprocess.run([*python, *slow], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    played = [line["video_qa"]["id"] for line in lines(out)]
    assert sorted(played) == sorted(qa.id for qa in rows), "each question exactly once"
    whole = before[: before.rfind(b"\n") + 1]
    assert journal_file.read_bytes().startswith(whole), "no episode was played again"
    result = json.loads((out / "report.json").read_text())
    assert result["episodes"] == len(rows) and result["failed"] == 0
    assert sum(result["ends"].values()) == len(rows)

    # a third time there is nothing to do: not even the model is loaded
    capsys.readouterr()
    assert main(command(checkpoint, data, out, "--concurrency", "1")) == 0
    assert f"{len(rows)} already played" in capsys.readouterr().err
    assert main(command(checkpoint, data, out, "agentic_video.system.max_turns=2")) == 2
    assert "system.max_turns = 3, and now it is 2" in capsys.readouterr().err


def test_an_unreadable_video_is_reported_and_tried_again(
    checkpoint: Path, small_world: World, tmp_path: Path, capsys: Any
) -> None:
    rows = [qa.to_row() for qa in load_rows([small_world.heldout])[0][:3]]
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    good, rows[1]["video"] = rows[1]["video"], str(broken)
    data, out = tmp_path / "rows.jsonl", tmp_path / "out"
    data.write_text("\n".join(json.dumps(row) for row in [*rows, {"id": "half"}]) + "\n")
    assert main(command(checkpoint, data, out)) == 1
    first = capsys.readouterr()
    assert "1 rows left out" in first.err
    assert len(lines(out)) == 2
    result = json.loads((out / "report.json").read_text())
    assert (result["episodes"], result["failed"]) == (2, 1)
    assert "1 questions could not be played" in first.out and "broken.mp4" in first.out
    # once the file is there, the same command plays what is missing
    broken.write_bytes(Path(good).read_bytes())
    assert main(command(checkpoint, data, out)) == 0
    assert len(lines(out)) == 3
    assert json.loads((out / "report.json").read_text())["failed"] == 0


@pytest.mark.ray
def test_shards(checkpoint: Path, small_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    out = tmp_path / "out"
    try:
        assert main(command(checkpoint, Path(small_world.heldout), out, "--shards", "2", "--limit", "5")) == 0
    finally:
        ray.shutdown()
    assert sorted(len(file.read_bytes().splitlines()) for file in out.glob("episodes-*.jsonl")) == [2, 3]
    assert json.loads((out / "report.json").read_text())["episodes"] == 5
