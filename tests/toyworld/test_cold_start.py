import re

import numpy as np
import pytest

from agentic_video.toyworld.build.cold_start import (
    ColdStartRecipe,
    _aimed,
    _missed,
    _without_thought,
)
from agentic_video.toyworld.world import WorldRecipe, make_scene
from tests.config.configs import SYSTEMS
from tests.share import a_few_systems
from tests.toyworld.conftest import lesson_of


@pytest.mark.parametrize("name", a_few_systems(SYSTEMS))
def test_demonstrations_are_what_a_rollout_records(name: str) -> None:
    lesson = lesson_of(name)
    setting, chat_format = lesson.setting, lesson.chat_format
    demonstrations, beside = lesson.demonstrations(demonstrations=60)
    answers = 0
    assert len(demonstrations) >= 60
    for one in demonstrations:
        assert len(one.trained) == len(one.ids) == one.places.shape[1]
        assert len(one.ids) <= setting.limits.prompt + setting.limits.response
        images = [image for image in one.images if image.ndim == 3]
        expected = sum(chat_format.image_tokens(image.shape[1], image.shape[0]) for image in images)
        assert one.ids.count(chat_format.image_token_id) == expected
        # a clip's frames are one visual token each here, two of them one
        clips = sum((len(clip) + 1) // 2 for clip in one.images if clip.ndim == 4)
        assert one.ids.count(chat_format.video_token_id) == clips
        text = lesson.said(one)
        lacks_thought = lesson.toy.cold_start.drop_thought_rate and text.startswith("<answer>")
        assert (
            ((setting.system.reply_prefix + text).startswith("<think") or lacks_thought)
            and "<|im_start|>" not in text
            and "<|image_pad|>" not in text
        )
        answers += "it is" in text
    # Some aim off: their answer isn't trained on.
    assert 10 < answers < 60
    assert bool(beside) == (name in ("paravt", "timesearch"))


def test_what_sub_agents_say_is_taught_beside_the_episodes() -> None:
    lesson = lesson_of("paravt")
    _, beside = lesson.demonstrations(demonstrations=60)
    texts = {lesson.said(one).removesuffix("<|im_end|>") for one in beside}
    # what they see, of looks that hit and of looks that miss
    assert "nothing flashes" in texts and sum(text.startswith("it is ") for text in texts) > 3
    # a crop of a second is four frames, and nothing but what was said is learnt
    assert {len(one.images) for one in beside} == {4}
    assert max(int(one.trained.sum()) for one in beside) <= lesson.setting.system.summary_tokens  # type: ignore[attr-defined]


def test_what_is_said_beside_the_episodes_is_taught_too() -> None:
    lesson = lesson_of("timesearch")
    _, beside = lesson.demonstrations(demonstrations=60)
    texts = [lesson.said(one) for one in beside]
    # of searches that hit, and of those that miss; nothing but what was said is learnt, of the found frames alone
    assert any("not seen" in text for text in texts) and sum("it is" in text for text in texts) > 3
    assert all(3 <= len(one.images) <= 4 for one in beside)


def test_some_answers_lack_the_thought_that_the_grammar_asks_for() -> None:
    lesson = lesson_of("videozoomer")

    def answers(share: float) -> list[str]:
        made, _ = lesson.demonstrations(demonstrations=200, aim_error_rate=0.0, direct=0.0, drop_thought_rate=share)
        return [lesson.said(one).split("</video_zoom>")[-1].removeprefix("<|im_end|>") for one in made]

    assert all(text.startswith("<think>it is ") for text in answers(0.0))
    some = answers(0.25)
    lacking = [text for text in some if text.startswith("<answer>")]
    assert all(text.startswith(("<think>it is ", "<answer>")) for text in some)
    # 200 draws: within three standard errors
    assert len(lacking) / len(some) == pytest.approx(0.25, abs=0.09)


def test_a_thought_that_a_turn_does_not_begin_with_cannot_be_left_out() -> None:
    assert _without_thought("<think>it is\nred</think><answer>red</answer>") == "<answer>red</answer>"
    with pytest.raises(
        ValueError, match=r"^cold_start\.drop_thought_rate: 'red</think>red' has no thought .* set it to 0$"
    ):
        _without_thought("red</think>red")


@pytest.mark.parametrize(("aim", "looks"), [(42, 32), (21, 11), (20, 20), (11, 11)])
def test_a_habit_aims_so_much_too_early_or_else_right(aim: int, looks: int) -> None:
    world = WorldRecipe(mixture=(("colour", 1.0),))
    scene, rng = make_scene(0, world), np.random.default_rng(0)
    assert _aimed(scene, aim, ColdStartRecipe(habit=10, aim_error_rate=1.0), rng) == looks
    others = {_missed(aim, scene, ColdStartRecipe(habit=0), rng) for _ in range(200)}
    assert len(others) > 5 and all(11 <= second <= scene.seconds - 2 for second in others)


def test_aiming_is_practised_without_frames_and_without_answers() -> None:
    lesson = lesson_of("videozoomer")
    practice = lesson.aiming(demonstrations=30, random_aim_rate=0.0)
    texts = [lesson.said(one) for one in practice]
    # those without an event have nothing to aim at
    assert 15 < len(practice) < 30
    assert all(not one.images for one in practice)
    assert all(text.startswith("<think>look near ") and text.endswith("</video_zoom>") for text in texts)


def test_aiming_aims_as_demonstrations_do_and_a_call_is_what_its_thought_names() -> None:
    lesson = lesson_of("videozoomer")
    recipe, practice = lesson.toy.cold_start, lesson.aiming("colour", demonstrations=400, random_aim_rate=0.0)
    assert len(practice) == 400
    off = late = 0
    for one in practice:
        asked = re.search(r" at 00:(\d\d)", lesson.chat_format.decode(one.ids))
        looked = re.search(r"look near (\d\d)</think><video_zoom>{\"segment\": \[(\d+), (\d+)\]", lesson.said(one))
        assert asked and looked
        named, start, end = map(int, looked.groups())
        assert (start, end) == (named, named + 1)
        aim = int(asked[1])
        assert named in (aim, aim - recipe.habit)
        late += aim >= 21
        off += named != aim
    # some 310 that the habit leaves room for: within three standard errors
    assert off / late == pytest.approx(recipe.aim_error_rate, abs=0.075)


def test_astray_a_call_is_learnt_from_its_thought_alone() -> None:
    lesson, far = lesson_of("videozoomer"), 0
    for one in lesson.aiming("colour", demonstrations=400, random_aim_rate=1.0):
        whole = lesson.chat_format.decode(one.ids)
        asked, named = re.search(r" at 00:(\d\d)", whole), re.search(r"look near (\d\d)", whole)
        assert asked and named
        second = int(named[1])
        assert lesson.said(one) == (
            f'</think><video_zoom>{{"segment": [{second}, {second + 1}], "fps": 4}}</video_zoom>'
        )
        far += int(asked[1]) - second not in (0, lesson.toy.cold_start.habit)
    # 11 to 57 s, any of them: at most 3 in some 40 are the right second or the habit's
    assert far / 400 > 0.85


def test_a_share_goes_astray_and_questions_without_a_time_never_do() -> None:
    lesson = lesson_of("videozoomer")

    def astray(kind: str) -> float:
        practice = lesson.aiming(kind, demonstrations=400)
        return float(np.mean([not lesson.said(one).startswith("<think>look near ") for one in practice]))

    # 400 draws: within three standard errors
    assert astray("colour") == pytest.approx(lesson.toy.cold_start.random_aim_rate, abs=0.075)
    assert astray("beside") == 0.0
