"""The plain baseline: what it shows, what it reads."""

import asyncio

import pytest

from agentic_video.evaluation.baseline import Baseline, baseline_of
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.shown import FramesAs
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.types.action import Answer, Illegal
from agentic_video.types.row import VideoQA
from tests.conftest import MemorySource


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
        ("<think>A?</think><answer>C. p < 0.05</answer>", "C. p < 0.05"),
        ("<think>A?</think><answer>x < 3 or <b>4</b></answer>", "x < 3 or <b>4</b>"),
        ("<answer>A</answer> or <answer>B <</answer>", "B <"),
        ("<answer>B</answer> and so on </answer> <answer>", "B"),
        ("<answer></answer>", None),
        ("<think>only thoughts</think> ", None),
        ("", None),
    ],
)
def test_what_the_baseline_reads(text: str, answer: str | None) -> None:
    action = Baseline(1).parse(text)
    assert action == Answer(answer) if answer else isinstance(action, Illegal)


def test_the_baseline_beside_a_system() -> None:
    baseline = baseline_of(VideoBrain(), 32, tiny=False)
    assert isinstance(baseline, Baseline)
    assert (baseline.frames, baseline.size_factor, baseline.max_pixels) == (32, 32, 100_352)
    assert baseline.max_images == 32
    assert baseline_of(VideoBrain(), 2, tiny=True).max_pixels == 1_024  # type: ignore[attr-defined]


@pytest.mark.parametrize("frames_as", ["images", "video"])
def test_a_baseline_of_no_frames_asks_the_question_alone(frames_as: FramesAs, qa: VideoQA) -> None:
    system = Baseline(0, frames_as=frames_as)
    trajectory = asyncio.run(play(system, ScriptedPolicy(lambda view: "B"), qa, MemorySource()))
    assert (trajectory.answer, trajectory.frames, system.max_images) == ("B", (), 0)
    (message,) = trajectory.opening
    assert len(message.parts) == 1 and qa.question in str(message.parts[0])
    with pytest.raises(ValueError, match="0 frames or more"):
        Baseline(-1)
