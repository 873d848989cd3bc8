"""Questions whose event must be searched: what their videos show, what demonstrations do, how a search is judged."""

import asyncio
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from agentic_video.systems.base import EpisodeView
from agentic_video.tools.base import Video
from agentic_video.toyworld.questions import row_of, scenes
from agentic_video.toyworld.scenes import SceneSource, path_of
from agentic_video.toyworld.search import SearchRecipe, demonstrate_search, fits, search_figures, signs_named
from agentic_video.toyworld.world import (
    COLOURS,
    MARK_COLOUR,
    PARTNERS,
    STRETCHES,
    Renderer,
    Scene,
    WorldRecipe,
    make_scene,
    overview_times,
    way,
)
from agentic_video.types.action import Calls
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory, Turn
from tests.config.configs import SYSTEMS, composed
from tests.share import a_few_systems
from tests.toyworld.conftest import laptop_setting, lesson_of

SEARCH = WorldRecipe(min_seconds=59, max_seconds=59, mixture=(("search", 1.0),), other_overviews=(4, 8))


def shown_at(scene: Scene, second: float) -> str:
    """What a frame shows, by its pixels: a colour's name, an arrow, or nothing."""
    picture = Renderer(scene, SEARCH).frame(round(second * SEARCH.fps)).astype(int)
    for name, colour in COLOURS.items():
        if (picture == colour).all(-1).mean() > 0.2:
            return name
    black = (picture == MARK_COLOUR).all(-1)
    if not black.any():
        return "nothing"
    left, right = black[:, : black.shape[1] // 2].sum(), black[:, black.shape[1] // 2 :].sum()
    return "later" if left > right else "earlier"


@pytest.mark.parametrize("seed", range(12))
def test_frames_show_the_event_or_where_it_is_and_overviews_only_the_signpost(seed: int) -> None:
    scene = make_scene(seed, SEARCH)
    assert scene.seconds == 59 and scene.event_time in {10 * stretch + 5 for stretch in STRETCHES}
    event = int(scene.event_time // 10)
    for stretch in range(6):
        expected = scene.answer if stretch == event else "later" if stretch < event else "earlier"
        assert shown_at(scene, stretch * 10 + 5) == expected
    for count in (4, 6, 8):
        for time in overview_times(scene.seconds, replace(SEARCH, overview_frames=count)):
            assert shown_at(scene, time) == (way(35, scene.event_time) if 30 <= time < 40 else "nothing"), (count, time)


def test_the_background_hints_at_the_answer() -> None:
    made = list(scenes("train", 2000, 0, SEARCH))
    assert all(PARTNERS[scene.tint] in scene.options and scene.answer in scene.options for scene in made)
    assert all(len(set(scene.options)) == 4 for scene in made)
    hinted = np.mean([PARTNERS[scene.tint] == scene.answer for scene in made])
    assert hinted == pytest.approx(0.4, abs=0.04)
    by_stretch = Counter(int((scene.event_time or 0) // 10) for scene in made)
    assert all(by_stretch[stretch] / 2000 == pytest.approx(0.25, abs=0.04) for stretch in STRETCHES)


def test_a_video_too_short_to_search_is_refused() -> None:
    with pytest.raises(ValueError, match="needs max_seconds >= 59, got 58"):
        WorldRecipe(max_seconds=58, mixture=(("search", 1.0),))


def view_of(scene: Scene) -> EpisodeView:
    qa, source = row_of(scene, path_of(scene), "train"), SceneSource({path_of(scene): scene}, SEARCH)
    return EpisodeView(qa, asyncio.run(Video.open(qa.video, source)))


@pytest.mark.parametrize("name", SYSTEMS)
def test_demonstrations_look_at_random_and_say_truly_what_they_see(name: str) -> None:
    turns, rng = laptop_setting(name).turns, np.random.default_rng(0)
    first_looks: Counter[tuple[str, int]] = Counter()
    looks: list[int] = []
    read: Counter[tuple[int, bool]] = Counter()
    for scene in scenes("train", 400, 1, SEARCH):
        search = demonstrate_search(view_of(scene), scene, turns, SearchRecipe(), rng)
        *calls, answer = search.turns
        seen = [re.search(r"(later|earlier)(\d\d)", text) for text in calls]
        assert all(seen)
        found = [match for match in seen if match]
        assert found[0][1] == way(35, scene.event_time or 0)
        for before, after in pairwise(found):
            assert after[1] == way(int(before[2]), scene.event_time or 0)
        hit = way(int(found[-1][2]), scene.event_time or 0) is None
        assert f">{scene.answer if hit else PARTNERS[scene.tint]}<" in answer or name == "framethinker"
        assert ("guess" in answer) == (not hit)
        if not search.only_answer:
            first_looks[found[0][1], int(found[0][2]) // 10] += 1
            looks.append(len(calls))
        else:
            read[len(calls), hit] += 1
    # what only teaches to read: one look that hits, a second that does, two that don't
    assert set(read) == {(1, True), (2, True), (2, False)} and all(35 < count < 75 for count in read.values())
    # where a look goes has nothing to do with the arrow before it
    for stretch in STRETCHES:
        later, earlier = first_looks["later", stretch], first_looks["earlier", stretch]
        assert abs(later - earlier) < 4 * (later + earlier) ** 0.5
    assert 1.15 < np.mean(looks) < 1.45


def test_what_teaches_to_read_teaches_nothing_else() -> None:
    lesson = lesson_of("videozoomer", "+profile=search")
    lesson = replace(lesson, setting=replace(lesson.setting, limits=replace(lesson.setting.limits, response=352)))
    recipe = SearchRecipe(reads=1.0)
    texts = [lesson.said(one) for one in lesson.demonstrations(demonstrations=80, search=recipe)[0]]
    assert all("video_zoom" not in text and "<answer>" in text for text in texts)
    for text in map(lesson.said, lesson.aiming(demonstrations=20, search=recipe)):
        look = r'>(?:later|earlier)(\d\d)</think><video_zoom>{"segment": \[(\d\d), (\d\d)\]'
        looks = re.findall(look, text)
        assert len(looks) == 2 and looks[0] != looks[1]
        assert all(named == start and int(end) == int(start) + 1 for named, start, end in looks)


def look(*stretches: int) -> Turn:
    frames = tuple(FrameRef(0, stretch * 10 + second, 28, 28) for stretch in stretches for second in (5.0, 5.5))
    return Turn("", Calls(()), 1, observation=frames)


@pytest.mark.parametrize(
    ("event", "stretches", "looks", "first", "second", "found"),
    [
        (1, [2, 1], 2, True, True, True),
        (1, [2, 2], 2, True, False, False),
        (1, [4, 1], 2, False, True, True),
        (4, [5, 2], 2, True, False, False),  # away from the signpost's arrow
        (4, [4], 1, True, None, True),
        (4, [4, 5], 2, True, None, True),  # what was found needs no second look
        (4, [3, 4], 1, True, None, True),  # a look at the signpost is no step
        (4, [], 0, None, None, False),
        # wide looks: at both places where the event may be, at both sides of the signpost, again at what was seen
        (4, [(4, 5)], 1, True, None, True),
        (5, [(4, 5)], 1, True, None, True),
        (4, [(2, 3, 4)], 1, False, None, True),
        (4, [(1, 2), (4, 5)], 2, False, True, True),
        (5, [4, (4, 5)], 2, True, True, True),
        (1, [(4, 5), (2, 4)], 2, False, True, False),
        (1, [2, (2, 4)], 2, True, False, False),
    ],
)
def test_how_a_search_is_judged(
    event: int, stretches: list[int | tuple[int, ...]], looks: int, first: bool | None, second: bool | None, found: bool
) -> None:
    turns = tuple(look(*([one] if isinstance(one, int) else one)) for one in stretches)
    trajectory = Trajectory("q", "videozoomer", (), turns, EndReason.ANSWER)
    figures = search_figures(trajectory, event * 10 + 5.0)
    assert (figures.looks, figures.first_follows, figures.second_follows, figures.found) == (
        looks,
        first,
        second,
        found,
    )


def test_whether_arrows_are_named_truly() -> None:
    def thinks(sign: str, stretch: int | None) -> Turn:
        return replace(
            look(stretch) if stretch is not None else Turn("", Calls(()), 1), text=f"<think>{sign}25</think>"
        )

    def named(*turns: Turn) -> list[tuple[str, bool]]:
        """The event is in the second stretch, so the signpost's arrow, that of the fourth, says earlier."""
        return list(signs_named(Trajectory("q", "videozoomer", (), turns, EndReason.ANSWER), 15.0))

    first, later = ("first frames", True), ("looks", True)
    assert named(thinks("earlier", 4), thinks("earlier", 1), thinks("green", None)) == [first, later]
    assert named(thinks("later", 2), thinks("later", 1)) == [("first frames", False), ("looks", False)]
    # the event has no arrow; a look at the signpost shows its arrow once more
    assert named(thinks("earlier", 1), thinks("earlier", None)) == [first, ("looks", False)]
    assert named(thinks("", 3), thinks("earlier", None)) == [first]
    # a refused look shows nothing
    assert named(thinks("earlier", None), thinks("earlier", 2)) == [first, first]
    assert named(thinks("", 1)) == []


def test_two_looks_that_follow_the_arrows_always_find() -> None:
    for event in STRETCHES:
        sign = "later" if event > 3 else "earlier"
        left = [stretch for stretch in STRETCHES if fits(stretch, 3, sign)]
        assert len(left) == 2
        first = left[0]
        if first != event:
            sign = "later" if event > first else "earlier"
            assert [stretch for stretch in left if fits(stretch, first, sign)] == [event]


@pytest.mark.parametrize("name", a_few_systems(SYSTEMS))
def test_every_recipe_searches(name: str) -> None:
    """Demonstrations fit the profile's budgets, and what they look at is what they say."""
    config, lesson = composed(name, "laptop", "+profile=search"), lesson_of(name, "+profile=search")
    limits = lesson.setting.limits
    assert limits.prompt + limits.response <= config.actor_rollout_ref.rollout.max_model_len
    assert config.actor_rollout_ref.actor.ppo_mini_batch_size <= config.data.train_batch_size
    several = 0
    for scene, _, search, trajectory in lesson.searches(24)[1]:
        assert trajectory.illegal_calls == 0
        said = [int(found[1]) // 10 for text in search.turns if (found := re.search(r"r(\d\d)\b", text))]
        assert scene.event_time is not None
        figures = search_figures(trajectory, scene.event_time)
        assert figures.looks == len(said) and figures.found == (int(scene.event_time // 10) in said)
        named = signs_named(trajectory, scene.event_time)
        assert named and all(true for _, true in named), search.turns
        several += figures.looks > 1
    assert several >= 3
