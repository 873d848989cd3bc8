import json
import time
from pathlib import Path

from agentic_video.launch.run_folder import (
    RUN_FILE,
    clean_leftovers,
    metrics_file,
    run_folder,
    run_identity,
    write_record,
)

DEAD = [2**22 + 1, 0.0]
"""A process that can't be: Linux numbers them up to 2**22."""


def test_an_unfinished_run_is_resumed_by_the_same_command_only(tmp_path: Path) -> None:
    first, resumed = run_folder(tmp_path, ["a=1"])
    assert (first.name, resumed) == ("run-001", False)
    write_record(first, launcher=DEAD)
    assert run_folder(tmp_path, ["a=1"]) == (first, True)
    write_record(first, launcher=DEAD)
    other, resumed = run_folder(tmp_path, ["a=2"])
    assert (other.name, resumed) == ("run-002", False)
    write_record(first, finished=True)
    assert run_folder(tmp_path, ["a=1"])[0].name == "run-003"


def test_a_run_in_progress_is_left_alone(tmp_path: Path) -> None:
    first, _ = run_folder(tmp_path, [])
    second, resumed = run_folder(tmp_path, [])  # this process, which is alive, holds the first
    assert (first.name, second.name, resumed) == ("run-001", "run-002", False)


def test_another_model_is_another_run() -> None:
    assert run_identity(["a=1"], {"MODEL_PATH": "m", "HOME": "h"}) == ["a=1", "MODEL_PATH=m"]
    assert run_identity(["a=1"], {}) == ["a=1"]


def test_a_damaged_record_is_not_resumed(tmp_path: Path) -> None:
    first, _ = run_folder(tmp_path, [])
    (first / RUN_FILE).write_text("{")
    assert run_folder(tmp_path, [])[0].name == "run-002"


def test_what_a_killed_attempt_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    clean_leftovers({"temporary": str(left), "started_at": time.time()})
    assert not left.exists()


def test_record_keeps_its_fields(tmp_path: Path) -> None:
    write_record(tmp_path, identity=["a=1"], finished=False)
    write_record(tmp_path, finished=True)
    assert json.loads((tmp_path / RUN_FILE).read_text()) == {"identity": ["a=1"], "finished": True}


def test_each_attempt_has_metrics_of_its_own(tmp_path: Path) -> None:
    first = metrics_file(tmp_path)
    assert (first.name, metrics_file(tmp_path)) == ("metrics-001.jsonl", first)
    first.touch()
    assert metrics_file(tmp_path).name == "metrics-002.jsonl"
