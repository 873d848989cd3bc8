from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentic_video.toyworld.questions import scenes
from agentic_video.toyworld.world import (
    COLOURS,
    EVENT_SECONDS,
    Renderer,
    WorldRecipe,
    make_scene,
    overview_times,
    write_video,
)


def test_scenes_follow_from_their_seed(recipe: WorldRecipe) -> None:
    assert make_scene(11, recipe) == make_scene(11, recipe)
    assert make_scene(11, recipe) != make_scene(12, recipe)


def test_files_follow_from_their_seed(recipe: WorldRecipe, tmp_path: Path) -> None:
    scene = make_scene(11, recipe)
    write_video(scene, tmp_path / "a.mp4", recipe)
    write_video(scene, tmp_path / "b.mp4", recipe)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_events_are_short_and_clear_of_the_overview(recipe: WorldRecipe) -> None:
    for scene in (scene for scene in scenes("train", 600, 0, recipe) if scene.kind != "search"):
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


def test_backgrounds_stay_dull(recipe: WorldRecipe) -> None:
    for scene in scenes("train", 40, 1, recipe):
        if scene.mark_time is None:
            picture = Renderer(scene, recipe).frame(5).astype(int)
            nearest = min(np.abs(picture.mean((0, 1)) - colour).max() for colour in COLOURS.values())
            assert nearest > 40
    assert EVENT_SECONDS < 1
