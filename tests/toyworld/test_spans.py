"""Questions that ask when something shows: what their videos show, what demonstrations answer, and what that earns."""

import asyncio
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from agentic_video.datasets.rows import load_rows
from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.toyworld.build.gate import guess_reward
from agentic_video.toyworld.questions import build_world, row_of, scenes
from agentic_video.toyworld.scenes import SceneSource, path_of
from agentic_video.toyworld.search import guess_of
from agentic_video.toyworld.world import (
    COLOURS,
    HOMES,
    STRETCHES,
    TINTS,
    Renderer,
    WorldRecipe,
    make_scene,
    overview_times,
    way,
)
from agentic_video.video.store import FrameStore
from tests.config.configs import SYSTEMS
from tests.share import a_few_systems
from tests.toyworld.conftest import laptop_setting, lesson_of

SPANS = WorldRecipe(min_seconds=59, max_seconds=59, mixture=(("span", 1.0),))
WINDOWS = {10: "10 - 20", 20: "20 - 30", 40: "40 - 50", 50: "50 - 59"}


@pytest.mark.parametrize("seed", range(8))
def test_the_named_colour_shows_from_the_answer_s_start_to_its_end(seed: int) -> None:
    scene = make_scene(seed, SPANS)
    ((start, end),) = scene.windows
    assert scene.answer == WINDOWS[round(start)] and end == (59 if start == 50 else start + 10)
    assert scene.question == f"When does {scene.beside} show?" and scene.options == () and scene.letter == ""
    drawn = Renderer(scene, SPANS)

    def shown(time: float) -> bool:
        picture = drawn.frame(round(time * SPANS.fps)).astype(int)
        return bool((picture == COLOURS[str(scene.beside)]).all(-1).mean() > 0.2)

    # the first and the last moment of it, and those beside them; overview frames are plain
    plain = {round(10 * time) for time in overview_times(59, SPANS)}
    for tenth in (10 * start, 10 * end - 1):
        assert shown(tenth / 10) or any(abs(tenth - one) < 2 for one in plain)
    assert not shown(start - 0.1) and (end == 59 or not shown(end))
    assert not any(shown(time) for time in overview_times(59, SPANS))
    assert [way(10 * stretch + 5, scene.event_time or 0) is None for stretch in range(6)].index(True) == start // 10


def test_the_row_asks_for_an_interval() -> None:
    scene = make_scene(3, SPANS)
    qa = row_of(scene, "v.mp4", "heldout")
    assert (qa.answer_type, qa.answer, qa.windows, qa.options) == ("interval", scene.answer, scene.windows, ())
    assert qa.extra["beside"] in qa.question and qa.extra["kind"] == "span"


def test_the_background_hints_at_the_stretch() -> None:
    made = list(scenes("train", 1000, 0, SPANS))
    assert set(HOMES) == set(TINTS) and set(HOMES.values()) == set(STRETCHES)
    hinted = np.mean([guess_of(scene) == (scene.answer, "") for scene in made])
    assert hinted == pytest.approx(0.4, abs=0.05)
    counts = Counter(scene.answer for scene in made)
    assert set(counts) == set(WINDOWS.values())
    assert all(count / 1000 == pytest.approx(0.25, abs=0.06) for count in counts.values())


def test_a_video_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="kind 'span' needs max_seconds >= 59, got 58"):
        WorldRecipe(max_seconds=58, mixture=(("span", 1.0),))


@pytest.mark.parametrize("name", a_few_systems(SYSTEMS))
def test_every_recipe_is_paid_for_the_overlap(name: str) -> None:
    """Demonstrations fit the profile's budgets; what was found earns 1, a guess what it overlaps."""
    lesson = lesson_of(name, "+profile=grounding")
    assert lesson.toy.world.mixture == (("span", 1.0),) and lesson.toy.base.world.mixture == (("search", 1.0),)
    source, played = lesson.searches(12)
    grades = set()
    for scene, qa, search, trajectory in played:
        score = asyncio.run(lesson.setting.system.score(trajectory, qa, Graders(source=source)))
        assert trajectory.illegal_calls == 0 and score.format == 1.0, (trajectory.turns, score)
        found = "guess" not in search.turns[-1]
        assert found == any(scene.sign in re.findall(r"\w+", text) for text in search.turns)
        assert score.acc == (1.0 if found or guess_of(scene)[0] == scene.answer else 0.0)
        grades.add((found, score.acc))
    assert grades >= {(True, 1.0), (False, 0.0)}


def test_chance_earns_the_overlap_with_one_stretch_of_four() -> None:
    setting = laptop_setting("videozoomer")
    made = {path_of(scene): scene for scene in scenes("heldout", 2, 0, SPANS)}
    rows = [row_of(scene, path, "heldout") for path, scene in made.items()]
    source = SceneSource(made, SPANS)
    earned = asyncio.run(guess_reward(setting, rows, source, Graders()))
    # a well-formed answer: 0.25 by the overlap, and what the format is worth
    wrong = ScriptedPolicy(lambda view: "<think>it is 0 - 1</think><answer>0 - 1</answer>")
    nothing = asyncio.run(play(setting.system, wrong, rows[0], source))
    base = asyncio.run(setting.system.score(nothing, rows[0], Graders()))
    right = ScriptedPolicy(lambda view: f"<think>it is so</think><answer>{rows[0].answer}</answer>")
    answered = asyncio.run(play(setting.system, right, rows[0], source))
    whole = asyncio.run(setting.system.score(answered, rows[0], Graders()))
    assert base.acc == 0.0 and whole.acc == 1.0
    assert earned == pytest.approx(base.reward + (whole.reward - base.reward) / 4)


def test_half_of_the_stretch_is_half_of_the_reward(tmp_path: Path) -> None:
    """On an encoded video, through the rows' file: what the agent answers is read as seconds and compared."""
    world = build_world(tmp_path, train=0, heldout=1, seed=0, recipe=SPANS)
    (qa,), problems = load_rows([world.heldout])
    assert not problems
    ((start, end),) = qa.windows
    system = laptop_setting("videozoomer").system
    half = f"{start:g} - {(start + end) / 2:g}"
    policy = ScriptedPolicy(lambda view: f"<think>it is {half}</think><answer>{half}</answer>")
    trajectory = asyncio.run(play(system, policy, qa, FrameStore()))
    assert asyncio.run(system.score(trajectory, qa, Graders())).acc == pytest.approx(0.5)
