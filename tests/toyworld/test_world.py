from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from agentic_video.toyworld import questions
from agentic_video.toyworld.questions import World, build_world, scenes
from agentic_video.toyworld.world import (
    COLOURS,
    EVENT_SECONDS,
    KINDS,
    Renderer,
    WorldRecipe,
    make_scene,
    overview_times,
    write_video,
)
from agentic_video.types.row import VideoQA


def test_scenes_follow_from_their_seed(recipe: WorldRecipe) -> None:
    assert make_scene(11, recipe) == make_scene(11, recipe)
    assert make_scene(11, recipe) != make_scene(12, recipe)


def test_files_follow_from_their_seed(recipe: WorldRecipe, tmp_path: Path) -> None:
    scene = make_scene(11, recipe)
    write_video(scene, tmp_path / "a.mp4", recipe)
    write_video(scene, tmp_path / "b.mp4", recipe)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_questions_are_balanced_and_answerable(recipe: WorldRecipe) -> None:
    made = list(scenes("train", 600, 0, recipe))
    assert Counter(scene.letter for scene in made) == dict.fromkeys("ABCD", 150)
    assert {scene.kind for scene in made} == set(KINDS)
    for scene in made:
        assert len(set(scene.options)) == 4 and scene.answer in scene.options


def test_events_are_short_and_clear_of_the_overview(recipe: WorldRecipe) -> None:
    for scene in scenes("train", 600, 0, recipe):
        assert 40 <= scene.seconds <= 59
        for flash in scene.flashes:
            assert flash.end - flash.start <= 1.0
            assert flash.start >= 10 and flash.end <= scene.seconds - 1
            assert not any(flash.start <= time < flash.end for time in overview_times(scene.seconds, recipe))


def test_order_shows_both_colours_in_turn(recipe: WorldRecipe) -> None:
    for scene in scenes("train", 300, 0, recipe):
        if scene.kind == "order":
            first, last = (flash.figures[0].colour for flash in scene.flashes)
            assert first != last and {first, last} <= set(scene.options)
            assert scene.answer == (first if "first" in scene.question else last)


def test_count_shows_that_many_squares(recipe: WorldRecipe) -> None:
    scene = next(s for s in scenes("train", 300, 0, recipe) if s.kind == "count" and s.answer == "three")
    assert scene.event_time is not None
    picture = Renderer(scene, recipe).frame(round(scene.event_time * recipe.fps))
    half = recipe.side // 2
    quarters = [picture[y : y + half, x : x + half] for y in (0, half) for x in (0, half)]
    colour = COLOURS[scene.flashes[0].figures[0].colour]
    assert sum(bool((quarter == colour).all(-1).mean() > 0.3) for quarter in quarters) == 3


def test_longer_videos(recipe: WorldRecipe) -> None:
    longer = replace(recipe, min_seconds=250, max_seconds=300)
    for scene in scenes("train", 50, 0, longer):
        assert 250 <= scene.seconds <= 300
    assert any((scene.event_time or 0) > 100 for scene in scenes("train", 50, 0, longer))


@pytest.mark.parametrize(
    "setting", [{"side": 55}, {"min_seconds": 10}, {"max_seconds": 30}, {"mixture": (("colour", 0.5),)}]
)
def test_impossible_recipes_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting)).split("_")[-1]):
        WorldRecipe(**setting)  # type: ignore[arg-type]


def test_rows_survive_parquet(small_world: World, rows: list[VideoQA]) -> None:
    raw = pq.read_table(small_world.heldout).to_pylist()
    assert all(not Path(row["video"]).is_absolute() for row in raw)
    assert len(rows) == len({row.id for row in rows}) == 40
    for row, again in zip(raw, rows, strict=True):
        assert VideoQA.from_row(row).to_row() == row
        assert Path(again.video).is_file()
        assert again.options["ABCD".index(again.answer)] == again.extra["answer_text"]


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
    written = [{str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}
               for root in (tmp_path / "one", tmp_path / "many")]  # fmt: skip
    assert len(written[0]) == 6 and written[0] == written[1]


def test_backgrounds_stay_dull(recipe: WorldRecipe) -> None:
    for scene in scenes("train", 40, 1, recipe):
        if scene.mark_time is None:
            picture = Renderer(scene, recipe).frame(5).astype(int)
            nearest = min(np.abs(picture.mean((0, 1)) - colour).max() for colour in COLOURS.values())
            assert nearest > 40
    assert EVENT_SECONDS < 1
