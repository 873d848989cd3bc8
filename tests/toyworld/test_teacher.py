import asyncio
from dataclasses import replace

import pytest

from agentic_video.evaluation.model import ModelSpec
from agentic_video.rollout.episode import play
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.registry import SYSTEMS
from agentic_video.tools.base import Video
from agentic_video.toyworld.build.scripted import Setting
from agentic_video.toyworld.oracles import turns_of
from agentic_video.toyworld.questions import World
from agentic_video.toyworld.teacher import MARGIN, ScriptedTeacher, aim_of, answer_word, teacher_name
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason
from agentic_video.video.store import FrameStore
from tests.conftest import MemorySource
from tests.toyworld.conftest import laptop_setting

SPEC = ModelSpec("scripted", "scripted")


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_question_about_any_video_is_answered_right_after_a_look(name: str, qa: VideoQA) -> None:
    setting = laptop_setting(name)
    policy = ScriptedTeacher(SPEC, 28).policy(setting.system, setting.limits)
    trajectory = asyncio.run(play(setting.system, policy, qa, MemorySource()))
    assert trajectory.end is EndReason.ANSWER and trajectory.answer is not None
    assert "green" in trajectory.answer
    assert trajectory.tool_calls > 0 and trajectory.illegal_calls == 0


def test_the_synthetic_world_s_events_are_found(small_world: World, rows: list[VideoQA], setting: Setting) -> None:
    timed = [qa for qa in rows if qa.extra["event_time"] is not None][:3]
    assert timed
    for qa in timed:
        policy = ScriptedTeacher(SPEC, 28).policy(setting.system, setting.limits)
        trajectory = asyncio.run(play(setting.system, policy, qa, FrameStore()))
        assert trajectory.answer == answer_word(qa)
        assert any(abs(frame.time - qa.extra["event_time"]) < 1 for frame in trajectory.frames)


def test_a_system_without_an_oracle_of_its_own_names_another(setting: Setting, qa: VideoQA) -> None:
    class Elsewhere(type(setting.system)):  # type: ignore[misc]
        """The same system, in a module beside which there is none."""

    system = Elsewhere()
    with pytest.raises(ValueError, match="has no oracle"):
        teacher_name(system)
    module = turns_of(setting.system).__module__
    assert (teacher_name(setting.system), teacher_name(system, module)) == ("scripted", f"scripted:{module}")
    teacher = ScriptedTeacher(ModelSpec("scripted", teacher_name(system, module)), 28)
    trajectory = asyncio.run(play(system, teacher.policy(system, setting.limits), qa, MemorySource()))
    assert trajectory.end is EndReason.ANSWER and trajectory.tool_calls > 0


def test_where_it_looks_is_drawn_by_the_question_and_within_the_video(qa: VideoQA) -> None:
    def aim(qa: VideoQA, seconds: float) -> int | None:
        video = asyncio.run(Video.open(qa.video, MemorySource(duration=seconds)))
        return aim_of(EpisodeView(qa, video))

    aims = [aim(replace(qa, id=str(number)), 60) for number in range(50)]
    assert all(one is not None and MARGIN <= one < 60 - MARGIN for one in aims)
    assert len(set(aims)) > 20 and aims == [aim(replace(qa, id=str(number)), 60) for number in range(50)]
    assert aim(qa, 2 * MARGIN + 0.5) is None  # too short to look anywhere


def test_open_answers_are_said_as_they_are(qa: VideoQA) -> None:
    assert answer_word(replace(qa, options=(), answer="a red car", answer_type="open_ended")) == "a red car"
