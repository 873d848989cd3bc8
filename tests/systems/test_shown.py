"""``frames_as``: what each system shows as a clip, its labels, and what of its rules reads them."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentic_video.graders.base import Graders
from agentic_video.systems.eva.system import Eva
from agentic_video.systems.eva.verification import last_retrieval
from agentic_video.systems.framemind.ladder import FrameSampling
from agentic_video.systems.framemind.reward import used_tools
from agentic_video.systems.framemind.system import FrameMind
from agentic_video.systems.framethinker.grammar import read_steps
from agentic_video.systems.framethinker.system import FrameThinker
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import ClipRef, FrameRef, RecordedPart
from tests.conftest import MemorySource
from tests.systems.played import Nearest, run


def look(parts: Sequence[RecordedPart]) -> list[Any]:
    """Texts, numbers of images, and lists of the numbers of clips."""
    numbers: dict[type, Any] = {
        FrameRef: lambda ref: ref.index,
        ClipRef: lambda clip: [ref.index for ref in clip.frames],
    }
    return [part if isinstance(part, str) else numbers[type(part)](part) for part in parts]


def test_framethinker_checks_what_was_shown(qa: VideoQA) -> None:
    system = FrameThinker(overview_frames=4, look_frames=4, frames_as="video")
    pick = "<think>from 100 to 200</think><action>choose frames between 100 and 200</action>"
    trajectory = run(system, qa, MemorySource(), pick, "<think>b</think><action>output answer: B</action>")
    assert look(trajectory.opening[-1].parts)[1:] == ["frame 0 to frame 599: ", [0, 200, 399, 599]]
    # linspace(101, 199, 4) is 101, 133.67, 166.33, 199: rounded down, as released
    assert look(trajectory.turns[0].observation) == ["frame 101 to frame 199: ", [101, 133, 166, 199]]
    steps = read_steps(trajectory)
    assert steps.overview_end == 599 and steps.looks[0].shown == (101, 133, 166, 199)
    score = asyncio.run(system.score(trajectory, qa, Graders()))
    as_images = run(replace(system, frames_as="images"), qa, MemorySource(), *(turn.text for turn in trajectory.turns))
    assert score == asyncio.run(system.score(as_images, qa, Graders())) and score.reward > 1


CALLS = {
    "clip": '<tool_call>{"name": "VideoClip", "arguments": {"t_start": 2, "t_end": 8}}</tool_call>',
    "at": '<tool_call>{"name": "FrameAt", "arguments": {"t": 7}}</tool_call>',
}


def test_framemind_keeps_single_frames_as_images(qa: VideoQA) -> None:
    sampling = FrameSampling(3, 28, 28)
    system = FrameMind(
        low=sampling, high=sampling, tool_side=28, clip_min_frames=4, clip_max_frames=4, frames_as="video"
    )
    turn = f"<think>a</think>{CALLS['clip']}{CALLS['at']}<turn_sum>s</turn_sum>"
    trajectory = run(system, qa, MemorySource(), turn, "<think>b</think><answer>B</answer>")
    assert look(trajectory.opening[0].parts)[1:3] == ["<0.00s to 59.90s>", [0, 300, 599]]
    assert look(trajectory.turns[0].observation)[:6] == [
        "<tool_response>\n",
        "VideoClip:\n",
        "<2.00s to 8.00s>",
        [20, 40, 60, 80],
        "\n",
        "FrameAt:\n",
    ]
    assert look(trajectory.turns[0].observation)[6:8] == ["<7.00s>", 70]
    assert used_tools(trajectory) == {"VideoClip", "FrameAt"}
    # images and clips leave the context with the labels right before them
    left = system.drop_images(trajectory.turns[0].observation)  # type: ignore[arg-type]
    assert [part for part in left if "s>" in str(part)] == []


def test_videobrain_shows_found_frames_as_images(qa: VideoQA) -> None:
    system = VideoBrain(overview_frames=3, uniform_frames=4, clip_frames=2, frames_as="video")
    ranged = '<thinking>a</thinking><tool_call>{"name": "uniform_sample", "arguments": {"start_frame": 10, "end_frame": 40}}</tool_call>'  # noqa: E501
    found = '<thinking>a</thinking><tool_call>{"name": "clip_sample", "arguments": {"start_frame": 0, "end_frame": 9, "prompt": "x"}}</tool_call>'  # noqa: E501
    trajectory = run(
        system, qa, MemorySource(), ranged, found, "<thinking>b</thinking><answer>B</answer>", retriever=Nearest(9**9)
    )
    assert look(trajectory.opening[-1].parts)[1:] == ["\nframe 0 to frame 599: ", [0, 300, 599]]
    first, second = (look(turn.observation) for turn in trajectory.turns[:2])
    assert isinstance(first[2], list) and len(first[2]) == 4
    assert first[1] == f"\nframe {first[2][0]} to frame {first[2][-1]}: "
    assert not any(isinstance(part, list) for part in second) and sum(isinstance(part, int) for part in second) == 2


def test_eva_has_a_clip_for_each_call(qa: VideoQA) -> None:
    system = Eva(frames_as="video", csv=False)
    asked = [(0, 10, 3), (20, 30, 1), (40, 50, 2)]
    calls = [
        {"tool": "frame_select", "arguments": {"start_time": start, "end_time": end, "nframes": count, "resize": 1.0}}
        for start, end, count in asked
    ]
    turn = "<think>a</think>" + "".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls)
    trajectory = run(system, qa, MemorySource(), turn, "<think>b</think><answer>B</answer>")
    assert look(trajectory.turns[0].observation)[1:-1] == [
        "Frame 0 at [00:00] to frame 2 at [00:10]: ",
        [0, 50, 100],
        "\nFrame 3 at [00:25]: ",
        250,
        "\nFrame 4 at [00:40] to frame 5 at [00:50]: ",
        [400, 500],
    ]
    assert [ref.index for ref in last_retrieval(trajectory)] == [0, 50, 100, 250, 400, 500]


@pytest.mark.parametrize("overview", ["keyframes", "retrieval", "listed"])
def test_frames_that_are_not_evenly_spaced_stay_images(overview: Any, qa: VideoQA) -> None:
    system = VideoZoomer(overview=overview, overview_max_frames=4, frames_as="video")
    asked = replace(qa, extra={"overview_times": [1.0, 2.0, 30.0]})
    trajectory = run(system, asked, MemorySource(), "<think>b</think><answer>B</answer>", retriever=Nearest(9**9))
    assert len(trajectory.visuals) > 1 and not any(isinstance(shown, ClipRef) for shown in trajectory.visuals)
