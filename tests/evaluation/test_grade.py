"""A system's own rule for right answers, without what its reward needs beside; the baseline."""

import asyncio

import pytest

from agentic_video.evaluation.baseline import Baseline
from agentic_video.graders.base import Graders
from agentic_video.graders.endpoint import EndpointError
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import System
from agentic_video.systems.eva.system import Eva
from agentic_video.systems.framemind.system import FrameMind
from agentic_video.systems.framethinker.system import FrameThinker
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.types.action import Answer, Illegal
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn
from tests.conftest import MemorySource


def grade(system: System, answer: str | None, qa: VideoQA) -> float:
    turns = () if answer is None else (Turn(answer, Answer(answer), 1),)
    end = EndReason.TURN_LIMIT if answer is None else EndReason.ANSWER
    return asyncio.run(system.grade(Trajectory(qa.id, system.name, (), turns, end), qa, Graders()))


@pytest.mark.parametrize(
    ("system", "answer", "expected"),
    [
        (VideoZoomer(), "green. B.", 1.0),
        (VideoZoomer(answer_match="robust"), "green. B.", 0.0),
        (FrameMind(), "B.", 0.0),
        (FrameMind(), "B", 1.0),
        (FrameThinker(answer_match="exact"), "B and more", 1.0),
        (FrameThinker(), "B and more", 0.0),
        (VideoBrain(answer_match="robust"), "(b)", 1.0),
        (VideoBrain(), None, 0.0),
        (Eva(), "B", 1.0),
        (Baseline(2), "The answer is B.", 1.0),
        (Baseline(2), "C", 0.0),
    ],
)
def test_each_system_grades_by_its_own_rule(system: System, answer: str | None, expected: float, qa: VideoQA) -> None:
    assert "class" not in qa.extra, "VideoBrain's reward would ask for it"
    assert grade(system, answer, qa) == expected


def test_open_ended_answers(qa: VideoQA) -> None:
    free = VideoQA("q", "memory", "what?", "a red ball", answer_type="open_ended")
    assert grade(Eva(), "a red ball", free) == pytest.approx(1.0)
    with pytest.raises(EndpointError):
        grade(VideoZoomer(), "a red ball", free)
    with pytest.raises(EndpointError):
        grade(VideoBrain(), "B", qa)


def test_the_baseline_shows_frames_once(qa: VideoQA) -> None:
    seen = []

    def say(view: object) -> str:
        seen.append(view)
        return "<think>hm</think> B"

    trajectory = asyncio.run(play(Baseline(3), ScriptedPolicy(say), qa, MemorySource()))
    assert trajectory.answer == "B" and len(seen) == 1
    assert [frame.index for frame in trajectory.frames] == [0, 300, 599]
    assert qa.question in str(trajectory.opening[0].parts[-1])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("B", "B"),
        ("<think>C</think>\nB", "B"),
        ("<thinking>C</thinking>B", "B"),
        ("so <answer> B </answer> it is", "B"),
        ("<answer>A</answer><answer>B</answer>", "B"),
        ("<think>only thoughts</think> ", None),
        ("", None),
    ],
)
def test_what_the_baseline_reads(text: str, answer: str | None) -> None:
    action = Baseline(1).parse(text)
    assert action == Answer(answer) if answer else isinstance(action, Illegal)
