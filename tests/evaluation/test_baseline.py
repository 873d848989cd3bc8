"""The plain baseline: what it shows, what it reads."""

import asyncio

import pytest

from agentic_video.evaluation.baseline import Baseline, baseline_of
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
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


def test_a_baseline_of_no_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 frame"):
        Baseline(0)
