"""VideoZoomer: its grammar, its reward (0.9 acc + 0.1 format + 0.5 [tool used and acc = 1]), its episodes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from agentic_video.systems.videozoomer.grammar import parse_turn
from agentic_video.systems.videozoomer.reward import VideoZoomerWeights, videozoomer_score
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn
from agentic_video.video.sampling import nearest_indices
from tests.conftest import MemorySource
from tests.systems.played import ended, run, seen, told

ZOOM = '<think>closer</think><video_zoom>{"segment": [41, 43], "fps": 2}</video_zoom>'
REPLY = "<think>seen</think><answer>B</answer>"
SMALL = VideoZoomer(min_pixels=784, max_pixels=3136)


CLOSER = Calls((ToolCall("video_zoom", {"segment": [41, 43], "fps": 2}),))
NEITHER = Illegal("neither a call nor an answer")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (ZOOM, CLOSER),
        (ZOOM + " \n", CLOSER),
        (REPLY, Answer("B")),
        (REPLY + ZOOM, CLOSER),  # the engine stopped at the call: it counts
        (ZOOM + REPLY, Answer("B")),
        (ZOOM + ZOOM, Illegal("one turn may hold only one call")),
        ("</video_zoom>", NEITHER),
        (REPLY + "</video_zoom>", Answer("B")),  # a closing tag alone is no call
        (REPLY + "<video_zoom></video_zoom>", Illegal("the call is not valid JSON")),
        ("<video_zoom>" + ZOOM, Illegal("one turn may hold only one call")),
        ("<video_zoom>{segment: 1}</video_zoom>", Illegal("the call is not valid JSON")),
        ("<answer>B", NEITHER),
        ("\x00" * 1000, NEITHER),
    ],
)
def test_reading_a_turn(text: str, action: Action) -> None:
    assert parse_turn(text) == action


def zoom(text: str = ZOOM) -> Turn:
    return Turn(text, CLOSER, 9, legal_calls=1)


def refused(text: str = ZOOM) -> Turn:
    return Turn(text, CLOSER, 9, illegal_calls=1)


def reply(text: str = REPLY, answer: str = "B") -> Turn:
    return Turn(text, Answer(answer), 9)


@pytest.mark.parametrize(
    ("trajectory", "acc", "reward"),
    [
        (ended(zoom(), reply()), 1.0, 1.5),  # 0.9 + 0.1 + 0.5
        (ended(zoom(), reply()), 0.0, 0.1),  # format alone
        (ended(reply()), 1.0, 1.0),  # no tool, no bonus
        (ended(reply()), 0.0, 0.1),
        (ended(zoom(), zoom(), zoom(), zoom(), reply()), 1.0, 1.5),  # four calls earn no more than one
        (ended(reply("<answer>B</answer>")), 1.0, 0.9),  # no think
        (ended(zoom(), reply("<answer>B</answer>")), 1.0, 1.4),
        (ended(zoom("<video_zoom>{}</video_zoom>"), reply()), 1.0, 1.4),  # a call without think
        (ended(refused(), reply()), 1.0, 0.9),  # a refused call is no tool use, and breaks the format
        (ended(refused(), zoom(), reply()), 1.0, 1.4),
        (ended(zoom(), end=EndReason.TURN_LIMIT), 0.0, 0.0),  # unanswered
        (ended(zoom(), zoom(), zoom(), zoom(), zoom(), end=EndReason.TURN_LIMIT), 0.0, 0.0),
        (ended(Turn("", Illegal("nothing"), 0), end=EndReason.ILLEGAL), 0.0, 0.0),
        (ended(end=EndReason.ENGINE_ERROR), 0.0, 0.0),
        (ended(reply("<think>a</think><answer>A</answer><answer>B</answer>")), 1.0, 0.9),  # two answers
        (ended(reply("<think>a</think> so <answer>B</answer>")), 1.0, 0.9),  # text in between
        (ended(reply("<think>a</think><answer>B</answer> indeed")), 1.0, 0.9),  # text behind
        (ended(reply(REPLY + "</answer>")), 1.0, 0.9),  # a stray closing tag
        (ended(reply("<think>a</think><think>b</think><answer>B</answer>")), 1.0, 0.9),  # two thoughts
        (ended(reply("<think>a <video_zoom> b</think><answer>B</answer>")), 1.0, 0.9),  # a zoom tag in the last turn
        (ended(zoom("<think><answer>B</answer></think>" + ZOOM[21:]), reply()), 1.0, 1.4),  # an answer tag earlier
        (ended(zoom(" " + ZOOM + "\n"), reply("\n" + REPLY + " ")), 1.0, 1.5),  # white space is free
    ],
)
def test_worked_cases(trajectory: Trajectory, acc: float, reward: float) -> None:
    assert videozoomer_score(trajectory, acc, VideoZoomerWeights()).reward == pytest.approx(reward)


def test_the_released_script_pays_no_bonus_nor_does_a_partial_grade_earn_one() -> None:
    trajectory = ended(zoom(), reply())
    assert videozoomer_score(trajectory, 1.0, VideoZoomerWeights(tool=0.0)).reward == pytest.approx(1.0)
    assert videozoomer_score(trajectory, 0.5, VideoZoomerWeights()).reward == pytest.approx(0.55)


RELEASED = replace(SMALL, frame_times="released")


def zoom_text(start: float, end: float, fps: float = 2) -> str:
    return f'<think>x</think><video_zoom>{{"segment": [{start}, {end}], "fps": {fps}}}</video_zoom>'


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
    for system, indices in ((SMALL, nearest), (RELEASED, released)):
        assert seen(run(system, qa, source, zoom_text(*segment), REPLY)) == indices


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
    assert seen(run(SMALL, qa, VariableSource(), zoom_text(4, 6), REPLY)) == [62, 67, 71, 75]
    released = run(RELEASED, qa, VariableSource(), zoom_text(4, 6), REPLY)
    assert seen(released) == [40, 46, 53, 60]
    # the labels say what is shown
    assert "<frame0_time1.60s>" in told(released) and "<frame3_time3.60s>" in told(released)


def test_instructions_may_be_a_system_message(qa: VideoQA, source: MemorySource) -> None:
    (one,) = run(SMALL, qa, source, REPLY).opening
    system, user = run(replace(SMALL, prompt_role="system"), qa, source, REPLY).opening
    assert (one.role, system.role, user.role) == ("user", "system", "user")
    assert system.parts == (str(one.parts[0]).strip(),) and user.parts == one.parts[1:]


def test_replies_end_with_how_to_go_on(qa: VideoQA, source: MemorySource) -> None:
    bad = "<think>x</think><video_zoom>{}</video_zoom>"
    told = replace(SMALL, go_on=" GO ON", go_on_refused=" MEND IT", last_turn_notice=" LAST")
    trajectory = run(told, qa, source, ZOOM, bad, ZOOM, bad, REPLY)
    ends = [str(turn.observation[-1]).rpartition("</tool_response>")[2] for turn in trajectory.turns[:4]]
    assert ends == [" GO ON", " MEND IT", " GO ON", " MEND IT LAST"]
    silent = run(replace(told, go_on="", go_on_refused=""), qa, source, ZOOM, bad, REPLY)
    assert [str(turn.observation[-1])[-16:] for turn in silent.turns[:2]] == ["</tool_response>"] * 2
