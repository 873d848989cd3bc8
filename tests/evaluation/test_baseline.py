"""The plain baseline: what it shows, what it reads."""

import asyncio

import pytest

from agentic_video.evaluation.baseline import Baseline, baseline_of
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import System
from agentic_video.systems.eva.system import Eva
from agentic_video.systems.framethinker.system import FrameThinker
from agentic_video.systems.longvt.system import LongVT
from agentic_video.systems.paravt.system import ParaVT
from agentic_video.systems.shown import FramesAs
from agentic_video.systems.timesearch.system import TimeSearch
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.systems.videoo3.system import VideoO3
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.types.action import Answer, Illegal
from agentic_video.types.row import VideoQA
from tests.conftest import FlatSource, MemorySource


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


def test_a_chain_of_thought_is_asked_for_before_the_answer(qa: VideoQA) -> None:
    def asked(prompt: str) -> str:
        policy = ScriptedPolicy(lambda view: "<think>A, no</think><answer>B</answer>")
        trajectory = asyncio.run(play(Baseline(3, prompt=prompt), policy, qa, MemorySource()))
        assert trajectory.answer == "B"
        return str(trajectory.opening[0].parts[-1])

    assert "<think>" not in asked("baseline")
    said = asked("baseline_cot")
    assert said.index(qa.question) < said.index("<think>") < said.index("<answer>")


def test_the_baseline_beside_a_system() -> None:
    baseline = baseline_of(VideoBrain(), 32, tiny=False)
    assert isinstance(baseline, Baseline)
    assert (baseline.frames, baseline.size_factor, baseline.max_pixels) == (32, 32, 100_352)
    assert baseline.max_images == 32
    assert baseline_of(VideoBrain(), 2, tiny=True).max_pixels == 1_024  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("system", "frames", "size"),
    [
        (VideoZoomer(), 128, (420, 224)),  # at most 128 tokens
        (FrameThinker(), 32, (420, 224)),
        (Eva(), 32, (420, 224)),  # its own bounds are those of a call's frames
        (LongVT(), 512, (280, 168)),  # at most 64
        (LongVT(max_pixels=25_088), 512, (196, 112)),  # 32
        (ParaVT(), 64, (288, 160)),  # 49 of 32 x 32
        (VideoO3(), 768, (224, 112)),  # 16,384 for 384 pairs are 42 each
        (VideoO3(), 64, (840, 448)),  # 512 each
        (VideoO3(frames_as="images"), 768, (168, 84)),  # 21 each
        (TimeSearch(), 768, (168, 84)),  # 10,240 for 384 pairs are 26 each
        (TimeSearch(overview_tokens=24_000), 768, (280, 140)),  # 62
        (TimeSearch(), 4, (588, 336)),  # 256 are the most of one
    ],
)
def test_its_frames_are_as_large_as_the_system_s(
    system: System, frames: int, size: tuple[int, int], qa: VideoQA
) -> None:
    baseline = baseline_of(system, frames, tiny=False)
    long = FlatSource(2400.0, size=(1280, 720))
    trajectory = asyncio.run(play(baseline, ScriptedPolicy(lambda view: "B"), qa, long))
    shown = trajectory.frames
    assert len(shown) == frames and {(frame.width, frame.height) for frame in shown} == {size}


def test_a_short_video_s_frames_share_the_tokens_too() -> None:
    baseline = Baseline(768, max_pixels=10**6, view_tokens=1_000)
    info = MemorySource(1.0, size=(1280, 720)).info  # 10 frames of 100 tokens
    assert baseline.frame_size(info) == (364, 196)
    assert baseline.with_frames(2).frame_size(info) == (812, 448)  # type: ignore[attr-defined]
    assert Baseline(768, min_pixels=50_176, view_tokens=1).frame_size(info) == (28, 28), "they share no less than one"


@pytest.mark.parametrize("frames_as", ["images", "video"])
def test_a_baseline_of_no_frames_asks_the_question_alone(frames_as: FramesAs, qa: VideoQA) -> None:
    system = Baseline(0, frames_as=frames_as)
    trajectory = asyncio.run(play(system, ScriptedPolicy(lambda view: "B"), qa, MemorySource()))
    assert (trajectory.answer, trajectory.frames, system.max_images) == ("B", (), 0)
    (message,) = trajectory.opening
    assert len(message.parts) == 1 and qa.question in str(message.parts[0])
    with pytest.raises(ValueError, match="from 0 to 100000000 frames"):
        Baseline(-1)
