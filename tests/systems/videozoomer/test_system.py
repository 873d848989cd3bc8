"""VideoZoomer's episodes: what is shown, what calls do, when it ends."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.types.frame import Frame
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory
from agentic_video.video.sampling import nearest_indices
from tests.conftest import MemorySource
from tests.systems.videozoomer.texts import REPLY, SMALL, ZOOM, run


def shown(trajectory: Trajectory) -> list[str]:
    return [part for message in trajectory.opening for part in message.parts if isinstance(part, str)]


def test_overview_by_rate(qa: VideoQA) -> None:
    # 60 s at 0.5 fps: frames at 0, 2, ... 58 s
    trajectory = run(SMALL, qa, MemorySource(60.0), REPLY)
    assert [frame.time for frame in trajectory.frames] == [2.0 * i for i in range(30)]


def test_overview_of_a_long_video_is_64_uniform_frames(qa: VideoQA) -> None:
    # 0.5 fps over 300 s would be 150 frames
    trajectory = run(SMALL, qa, MemorySource(300.0, fps=1.0), REPLY)
    assert len(trajectory.frames) == 64
    assert trajectory.frames[0].index == 0
    assert trajectory.frames[-1].index == 299


def test_labels_carry_number_and_time(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, ZOOM, REPLY)
    assert shown(trajectory)[1:3] == ["<frame0_time0.00s>", "<frame1_time2.00s>"]
    observation = trajectory.turns[0].observation
    # int(2 * 2) = 4 frames at 41, 41.667, 42.333, 43; the closest at 10 fps; numbers start again at 0
    assert [part.time for part in observation if isinstance(part, FrameRef)] == [41.0, 41.7, 42.3, 43.0]
    assert observation[:3] == ("<tool_response>\n", "<frame0_time41.00s>", observation[2])
    assert "<frame3_time43.00s>" in observation
    assert str(observation[-1]).startswith("\n</tool_response>")


RELEASED = replace(SMALL, frame_times="released")


def zoomed(system: VideoZoomer, qa: VideoQA, source: MemorySource, start: float, end: float) -> list[int]:
    """Numbers of the frames of a zoom at 2 frames a second."""
    call = f'<think>x</think><video_zoom>{{"segment": [{start}, {end}], "fps": 2}}</video_zoom>'
    observation = run(system, qa, source, call, REPLY).turns[0].observation
    return [part.index for part in observation if isinstance(part, FrameRef)]


@pytest.mark.parametrize(
    ("fps", "segment", "nearest", "released"),
    [
        # times times 29.97: 59.94, 79.92, 99.9, 119.88; released: linspace(59, 119, 4)
        (29.97, (2, 4), [60, 80, 100, 120], [59, 79, 99, 119]),
        # times times 23.976: 23.976, 39.96, 55.944, 71.928; released: linspace(23, 71, 4)
        (23.976, (1, 3), [24, 40, 56, 72], [23, 39, 55, 71]),
        # the video's 299 frames end at number 298: linspace(239, 298, 4) = 239, 258.67, 278.33, 298
        (29.97, (8, 10), [240, 260, 280, 298], [239, 258, 278, 298]),
        # a whole rate and whole seconds: the same but for 1/3 and 2/3 of the way, 26.67 and 33.33
        (10.0, (2, 4), [20, 27, 33, 40], [20, 26, 33, 40]),
    ],
)
def test_frames_of_a_zoom(
    qa: VideoQA, fps: float, segment: tuple[int, int], nearest: list[int], released: list[int]
) -> None:
    source = MemorySource(10.0, fps=fps)
    assert zoomed(SMALL, qa, source, *segment) == nearest
    assert zoomed(RELEASED, qa, source, *segment) == released


def test_a_released_overview_steps_over_whole_frames(qa: VideoQA) -> None:
    # 29.97 / 0.5 = 59.94, so every 60th of 3,836 frames: 64, the last one 3.8 frames later than at 126 s
    source = MemorySource(128.0, fps=29.97)
    indices = [frame.index for frame in run(RELEASED, qa, source, REPLY).frames]
    assert indices == list(range(0, 3836, 60)) and len(indices) == 64
    assert run(SMALL, qa, source, REPLY).frames[-1].index == 3776
    # 3,842 frames would be 65: 64 uniform ones, 60.97 apart, cut
    indices = [frame.index for frame in run(RELEASED, qa, MemorySource(128.2, fps=29.97), REPLY).frames]
    assert len(indices) == 64 and indices[:4] == [0, 60, 121, 182] and indices[-1] == 3841


class VariableSource(MemorySource):
    """100 frames in ten seconds: 50 in the first two, 50 in the other eight."""

    def __init__(self) -> None:
        super().__init__(10.0)
        self.stamps = [*np.arange(50) / 25, *(2 + np.arange(50) * 0.16)]

    def draw(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> list[Frame]:
        frames = super().draw(path, indices, size)
        return [replace(frame, time=float(self.stamps[frame.index])) for frame in frames]

    def indices_at(self, path: str, times: Sequence[float]) -> list[int]:
        return nearest_indices(self.stamps, times)


def test_where_the_rate_varies_released_numbers_are_not_the_times(qa: VideoQA) -> None:
    # 4 to 6 s: frames 50 + 2 / 0.16 = 62.5 to 75; at the average rate, 10 a second, 40 to 60
    assert zoomed(SMALL, qa, VariableSource(), 4, 6) == [62, 67, 71, 75]
    assert zoomed(RELEASED, qa, VariableSource(), 4, 6) == [40, 46, 53, 60]
    # the labels say what is shown
    call = '<think>x</think><video_zoom>{"segment": [4, 6], "fps": 2}</video_zoom>'
    observation = run(RELEASED, qa, VariableSource(), call, REPLY).turns[0].observation
    assert "<frame0_time1.60s>" in observation and "<frame3_time3.60s>" in observation


def test_frame_sizes_keep_the_pixel_budget(qa: VideoQA) -> None:
    trajectory = run(VideoZoomer(), qa, MemorySource(10.0, size=(1920, 1080)), REPLY)
    for frame in trajectory.frames:
        assert 25_088 <= frame.width * frame.height <= 100_352
        assert frame.width % 28 == frame.height % 28 == 0


def test_instructions_may_be_a_system_message(qa: VideoQA, source: MemorySource) -> None:
    (one,) = run(SMALL, qa, source, REPLY).opening
    system, user = run(replace(SMALL, prompt_role="system"), qa, source, REPLY).opening
    assert (one.role, system.role, user.role) == ("user", "system", "user")
    assert system.parts == (str(one.parts[0]).strip(),) and user.parts == one.parts[1:]


def test_a_closing_tag_alone_is_no_call(qa: VideoQA, source: MemorySource) -> None:
    stray = run(SMALL, qa, source, "<think>a</think></video_zoom>", REPLY)
    assert (stray.end, len(stray.turns), stray.illegal_calls) == (EndReason.ILLEGAL, 1, 1)
    answered = run(SMALL, qa, source, REPLY + "</video_zoom>")
    assert (answered.end, answered.answer) == (EndReason.ANSWER, "B")
    # right, and not well-formed: 0.1 less than without the tag
    assert asyncio.run(SMALL.score(answered, qa, Graders())).reward == pytest.approx(0.9)


def test_illegal_call_is_told_and_uses_up_a_turn(qa: VideoQA, source: MemorySource) -> None:
    broken = "<think>x</think><video_zoom>{segment: 1}</video_zoom>"
    trajectory = run(SMALL, qa, source, broken, ZOOM, REPLY)
    assert trajectory.end is EndReason.ANSWER
    assert (trajectory.tool_calls, trajectory.illegal_calls, len(trajectory.turns)) == (1, 1, 3)
    (reply,) = trajectory.turns[0].observation
    assert str(reply).startswith("<tool_response>\nError: the call is not valid JSON.\n</tool_response>")


def test_replies_end_with_how_to_go_on(qa: VideoQA, source: MemorySource) -> None:
    bad = "<think>x</think><video_zoom>{}</video_zoom>"
    told = replace(SMALL, go_on=" GO ON", go_on_refused=" MEND IT", last_turn_notice=" LAST")
    trajectory = run(told, qa, source, ZOOM, bad, ZOOM, bad, REPLY)
    ends = [str(turn.observation[-1]).rpartition("</tool_response>")[2] for turn in trajectory.turns[:4]]
    assert ends == [" GO ON", " MEND IT", " GO ON", " MEND IT LAST"]
    silent = run(replace(told, go_on="", go_on_refused=""), qa, source, ZOOM, bad, REPLY)
    assert [str(turn.observation[-1])[-16:] for turn in silent.turns[:2]] == ["</tool_response>"] * 2


def test_last_turn_is_announced_once_before_it(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, *[ZOOM] * 4, REPLY)
    announced = ["No further call" in str(turn.observation[-1:]) for turn in trajectory.turns]
    assert announced == [False, False, False, True, False]


def test_a_refused_call_before_the_last_turn_announces_it_too(qa: VideoQA, source: MemorySource) -> None:
    bad = "<think>x</think><video_zoom>{}</video_zoom>"
    trajectory = run(SMALL, qa, source, *[bad] * 4, REPLY)
    assert "No further call" in str(trajectory.turns[3].observation[0])


def test_image_cap_ends_before_the_images_are_shown(qa: VideoQA, source: MemorySource) -> None:
    many = '<think>x</think><video_zoom>{"segment": [0, 16], "fps": 1}</video_zoom>'
    # 30 overview frames and 16 a call: 46, 62 fit 64, 78 doesn't
    trajectory = run(VideoZoomer(min_pixels=784, max_pixels=3136, max_images=64), qa, source, *[many] * 4, REPLY)
    assert trajectory.end is EndReason.IMAGE_BUDGET
    assert len(trajectory.frames) == 62


def test_unreadable_frames_are_a_tool_error(qa: VideoQA) -> None:
    source = MemorySource()

    def script(view: object) -> str:
        source.fail_frames = True
        return ZOOM

    trajectory = asyncio.run(play(SMALL, ScriptedPolicy(script), qa, source))
    assert trajectory.end is EndReason.TOOL_ERROR
    assert "made to fail" in trajectory.error
