"""Worked cases of VideoZoomer's reward: 0.9 acc + 0.1 format + 0.5 [tool used and acc = 1]."""

import pytest

from agentic_video.systems.videozoomer.reward import VideoZoomerWeights, videozoomer_score
from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.trajectory import EndReason, Trajectory, Turn

ZOOM = '<think>closer</think><video_zoom>{"segment": [1, 3], "fps": 2}</video_zoom>'
REPLY = "<think>seen</think><answer>B</answer>"
CALLS = Calls((ToolCall("video_zoom", {"segment": [1, 3], "fps": 2}),))


def zoom(text: str = ZOOM) -> Turn:
    return Turn(text, CALLS, 9, legal_calls=1)


def refused(text: str = ZOOM) -> Turn:
    return Turn(text, CALLS, 9, illegal_calls=1)


def reply(text: str = REPLY, answer: str = "B") -> Turn:
    return Turn(text, Answer(answer), 9)


def episode(*turns: Turn, end: EndReason = EndReason.ANSWER) -> Trajectory:
    return Trajectory("q", "videozoomer", (), turns, end)


@pytest.mark.parametrize(
    ("trajectory", "acc", "reward"),
    [
        (episode(zoom(), reply()), 1.0, 1.5),  # 0.9 + 0.1 + 0.5
        (episode(zoom(), reply()), 0.0, 0.1),  # format alone
        (episode(reply()), 1.0, 1.0),  # no tool, no bonus
        (episode(reply()), 0.0, 0.1),
        (episode(zoom(), zoom(), zoom(), zoom(), reply()), 1.0, 1.5),  # four calls earn no more than one
        (episode(reply("<answer>B</answer>")), 1.0, 0.9),  # no think
        (episode(zoom(), reply("<answer>B</answer>")), 1.0, 1.4),
        (episode(zoom("<video_zoom>{}</video_zoom>"), reply()), 1.0, 1.4),  # a call without think
        (episode(refused(), reply()), 1.0, 0.9),  # a refused call is no tool use, and breaks the format
        (episode(refused(), zoom(), reply()), 1.0, 1.4),
        (episode(zoom(), end=EndReason.TURN_LIMIT), 0.0, 0.0),  # unanswered
        (episode(zoom(), zoom(), zoom(), zoom(), zoom(), end=EndReason.TURN_LIMIT), 0.0, 0.0),
        (episode(Turn("", Illegal("nothing"), 0), end=EndReason.ILLEGAL), 0.0, 0.0),
        (episode(end=EndReason.ENGINE_ERROR), 0.0, 0.0),
        (episode(reply("<think>a</think><answer>A</answer><answer>B</answer>")), 1.0, 0.9),  # two answers
        (episode(reply("<think>a</think> so <answer>B</answer>")), 1.0, 0.9),  # text in between
        (episode(reply("<think>a</think><answer>B</answer> indeed")), 1.0, 0.9),  # text behind
        (episode(reply(REPLY + "</answer>")), 1.0, 0.9),  # a stray closing tag
        (episode(reply("<think>a</think><think>b</think><answer>B</answer>")), 1.0, 0.9),  # two thoughts
        (episode(reply("<think>a <video_zoom> b</think><answer>B</answer>")), 1.0, 0.9),  # a zoom tag in the last turn
        (episode(zoom("<think><answer>B</answer></think>" + ZOOM[22:]), reply()), 1.0, 1.4),  # an answer tag earlier
        (episode(zoom(" " + ZOOM + "\n"), reply("\n" + REPLY + " ")), 1.0, 1.5),  # white space is free
    ],
)
def test_worked_cases(trajectory: Trajectory, acc: float, reward: float) -> None:
    assert videozoomer_score(trajectory, acc, VideoZoomerWeights()).reward == pytest.approx(reward)


def test_released_script_pays_no_bonus() -> None:
    assert videozoomer_score(episode(zoom(), reply()), 1.0, VideoZoomerWeights(tool=0.0)).reward == pytest.approx(1.0)


def test_a_partial_grade_earns_no_bonus() -> None:
    assert videozoomer_score(episode(zoom(), reply()), 0.5, VideoZoomerWeights()).reward == pytest.approx(0.55)
