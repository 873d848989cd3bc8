"""How a run searched, from the episodes that it recorded."""

import sys
from pathlib import Path

import pytest

from agentic_video.toyworld.questions import row_of
from agentic_video.toyworld.search_report import by_steps, main, summarize, table
from agentic_video.toyworld.world import make_scene
from agentic_video.types.record import Record, write_record
from agentic_video.types.trajectory import EndReason, Trajectory
from agentic_video.utils.errors import SetupError
from tests.toyworld.test_search import SEARCH, look

SCENE = next(scene for scene in (make_scene(seed, SEARCH) for seed in range(100)) if scene.event_time == 45.0)


def record(*stretches: int, acc: float) -> Record:
    turns = tuple(look(stretch) for stretch in stretches)
    played = Trajectory(f"toy-{SCENE.seed}", "videozoomer", (), turns, EndReason.ANSWER)
    return Record(row_of(SCENE, "a.mp4", "train"), played, {"acc": acc})


def write(folder: Path, step: int, *records: Record) -> None:
    (folder / "episodes").mkdir(exist_ok=True)
    with (folder / "episodes" / f"step_{step:06d}.jsonl").open("w", encoding="utf-8") as file:
        for one in records:
            write_record(file, one)


def test_steps_are_taken_together(tmp_path: Path) -> None:
    # the event is in the stretch from 40 s: the signpost points later
    write(tmp_path, 1, record(1, acc=0), record(5, 4, acc=1))
    write(tmp_path, 2, record(2, 1, acc=0), record(acc=0))
    write(tmp_path, 3, record(4, acc=1))
    (first, one), (second, other) = by_steps(tmp_path, 2)
    assert (first, second) == ("1-2", "3-4")
    # looks 1, 2, 2, 0; first looks at 1 (no), 5 (yes), 2 (no); all missed, two of them looked again, one rightly
    assert (one.episodes, one.accuracy, one.looks) == (4, 0.25, 1.25)
    assert one.first_follows == pytest.approx(1 / 3) and one.again == pytest.approx(2 / 3)
    assert (one.second_follows, one.found) == (0.5, 0.25)
    assert (other.first_follows, other.again, other.second_follows, other.found) == (1.0, None, None, 1.0)
    assert table([(second, other)]).splitlines()[-1] == "| 3-4 | 1 | 1.00 | 1.00 | 1.00 | - | - | 1.00 |"


def test_other_worlds_have_nothing_to_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert summarize([]) is None
    with pytest.raises(SetupError, match="no episodes of a world that must be searched"):
        by_steps(tmp_path, 5)
    monkeypatch.setattr(sys, "argv", ["search_report", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"error: .*profile=search"):
        main()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "episodes" / "step_000001.jsonl").write_text("{\n", encoding="utf-8")
    with pytest.raises(SetupError, match=r"step_000001\.jsonl"):
        by_steps(tmp_path, 1)
