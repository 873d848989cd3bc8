from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from agentic_video.grounding.answer import grade_intervals
from agentic_video.toyworld import questions
from agentic_video.toyworld.questions import World, build_world, row_of, scenes
from agentic_video.toyworld.world import KINDS, WorldRecipe
from agentic_video.types.row import VideoQA


def test_questions_are_balanced_and_answerable(recipe: WorldRecipe) -> None:
    made = list(scenes("train", 600, 0, recipe))
    assert Counter(scene.letter for scene in made) == dict.fromkeys("ABCD", 150)
    assert {scene.kind for scene in made} == set(KINDS)
    for scene in made:
        assert len(set(scene.options)) == 4 and scene.answer in scene.options


def test_rows_survive_parquet(small_world: World, rows: list[VideoQA]) -> None:
    raw = pq.read_table(small_world.heldout).to_pylist()
    assert all(not Path(row["video"]).is_absolute() for row in raw)
    assert len(rows) == len({row.id for row in rows}) == 40
    for row, again in zip(raw, rows, strict=True):
        # a row without windows has no such field
        assert VideoQA.from_row(row).to_row() == {name: value for name, value in row.items() if value is not None}
        assert Path(again.video).is_file()
        assert again.options["ABCD".index(again.answer)] == again.extra["answer_text"]


def test_rows_say_when_the_evidence_is(rows: list[VideoQA]) -> None:
    for qa in rows:
        middle, seconds = qa.extra["event_time"], qa.extra["event_seconds"]
        assert qa.windows == (() if middle is None else ((middle - seconds / 2, middle + seconds / 2),))
    assert {len(qa.windows) for qa in rows} == {0, 1}


def test_an_answer_may_be_when_something_shows() -> None:
    recipe = WorldRecipe(mixture=(("when", 1.0),), open_ended=0.5)
    for scene in scenes("train", 20, 0, recipe):
        qa = row_of(scene, "v.mp4", "train")
        assert (qa.answer_type, qa.options, scene.letter) == ("interval", (), "")
        [flash] = scene.flashes
        assert qa.question == f"When does {flash.figures[0].colour} flash?"
        assert qa.windows == ((flash.start, flash.end),)
        assert grade_intervals(qa.answer, qa) == pytest.approx(1.0)
        assert VideoQA.from_row(qa.to_row()) == qa


def test_splits_share_no_video(small_world: World) -> None:
    train, heldout = (
        {row["extra_info"]["seed"] for row in pq.read_table(file).to_pylist()}
        for file in (small_world.train, small_world.heldout)
    )
    assert not train & heldout
    with pytest.raises(ValueError, match="room"):
        scenes("heldout", 10**6, 0, WorldRecipe())


def test_build_goes_on_where_it_stopped(tmp_path: Path) -> None:
    recipe = WorldRecipe(max_seconds=40)
    world = build_world(tmp_path, train=3, heldout=1, seed=0, recipe=recipe)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.mp4")}
    lost = next(iter(before))
    lost.unlink()
    build_world(tmp_path, train=3, heldout=1, seed=0, recipe=recipe)
    after = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.mp4")}
    assert len(before) == 4 and [file for file in after if after[file] != before[file]] == [lost]
    assert world.train.exists()


def test_processes_write_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = WorldRecipe(max_seconds=40)
    build_world(tmp_path / "one", train=3, heldout=1, seed=0, recipe=recipe)
    monkeypatch.setattr(questions, "WORTH_PROCESSES", 1)
    build_world(tmp_path / "many", train=3, heldout=1, seed=0, recipe=recipe)
    written = [
        {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}
        for root in (tmp_path / "one", tmp_path / "many")
    ]
    assert len(written[0]) == 6 and written[0] == written[1]
