"""No frame that a rollout begins with shows what its question asks for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentic_video.config.compose import compose_recipe, recipe_at
from agentic_video.config.settings import settings_of
from agentic_video.toyworld.build.recipe import first_view_counts, toy_recipe
from agentic_video.toyworld.questions import scenes
from agentic_video.toyworld.world import (
    EARLIER,
    EVENT_SECONDS,
    LATER,
    SIGNPOST,
    STRETCH,
    Scene,
    WorldRecipe,
    make_scene,
    overview_times,
)
from agentic_video.video.sampling import uniform_indices
from tests.config.configs import SYSTEMS


def shows(scene: Scene, fps: int, count: int) -> bool:
    events = [one for one in scene.flashes if not {figure.shape for figure in one.figures} & {LATER, EARLIER}]
    times = [index / fps for index in uniform_indices(scene.seconds * fps, count)]
    return any(one.start <= time < one.end for one in events for time in times)


@pytest.mark.parametrize("overrides", [(), ("+profile=search",), ("+profile=grounding",)])
@pytest.mark.parametrize("name", SYSTEMS)
def test_no_first_view_shows_an_event(name: str, overrides: Sequence[str]) -> None:
    config = compose_recipe(recipe_at(name), "laptop", list(overrides))
    system, recipe = settings_of(config).system, toy_recipe(config)
    counts = first_view_counts(system) or (recipe.world.overview_frames,)
    for scene in scenes("heldout", 96, recipe.seed, recipe.world):
        assert not any(shows(scene, recipe.world.fps, count) for count in counts), scene


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_search_begins_with_an_arrow(name: str) -> None:
    config = compose_recipe(recipe_at(name), "laptop", ["+profile=search"])
    system: Any = settings_of(config).system
    recipe = toy_recipe(config)
    world, search = recipe.world, recipe.cold_start.search
    # FrameMind's rollouts begin with views of several lengths, its held-out episodes with the first of them.
    counts = (system.first_view(0).frames,) if name == "framemind" else first_view_counts(system)
    starts = [overview_times(world.max_seconds, world, count) for count in counts]
    assert all(any(second // STRETCH == SIGNPOST for second in times) for times in starts)
    assert starts or (search is not None and search.opening)


def test_the_world_follows_the_system_s_first_view() -> None:
    ladder = toy_recipe(compose_recipe(recipe_at("framemind"), "laptop", [])).world
    assert (ladder.overview_frames, ladder.other_overviews) == (6, (4, 5, 7, 8))
    drawn = toy_recipe(compose_recipe(recipe_at("paravt"), "laptop", [])).world
    assert (drawn.overview_frames, drawn.other_overviews) == (6, (3,))
    key = "agentic_video.system.overview_max_frames=8"
    eight = toy_recipe(compose_recipe(recipe_at("videozoomer"), "laptop", [key])).world
    assert (eight.overview_frames, eight.other_overviews) == (6, (8,))
    given = compose_recipe(recipe_at("videozoomer"), "laptop", [key, "+agentic_video.toyworld.world.overview_frames=6"])
    assert toy_recipe(given).world == WorldRecipe()


def test_the_counts_are_those_that_episodes_begin_with() -> None:
    paravt: Any = settings_of(compose_recipe(recipe_at("paravt"), "laptop", [])).system
    assert {paravt.overview_count(f"{number}.mp4") for number in range(100)} == set(paravt.first_view_counts())
    framemind: Any = settings_of(compose_recipe(recipe_at("framemind"), "laptop", [])).system
    views = {framemind.first_view(index).frames for index in range(framemind.group_size)}
    assert views == set(framemind.first_view_counts()) == {4, 5, 6, 7, 8}


def test_a_first_view_of_nearly_every_second_leaves_a_world_as_it_was() -> None:
    for seed in range(50):
        assert make_scene(seed, WorldRecipe(other_overviews=(64,))) == make_scene(seed, WorldRecipe())
        make_scene(seed, WorldRecipe(other_overviews=(24,)))


def test_an_event_may_be_near_another_overview_s_frame_but_not_in_it() -> None:
    many = WorldRecipe(other_overviews=(4, 5, 7, 8))
    near = 0
    for seed in range(200):
        scene = make_scene(seed, many)
        if scene.event_time is None:
            continue
        assert not any(shows(scene, many.fps, count) for count in (4, 5, 6, 7, 8))
        times = [index / many.fps for index in uniform_indices(scene.seconds * many.fps, 8)]
        near += min(abs(scene.event_time - time) for time in times) <= 1.0
    assert near > 0 and EVENT_SECONDS / 2 < 0.5
    # with one overview alone nothing changes
    assert make_scene(5, WorldRecipe()) == make_scene(5, replace(many, other_overviews=()))
