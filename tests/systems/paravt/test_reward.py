"""Worked cases of ParaVT's reward: acc + format (at most 1) + tool."""

from dataclasses import replace

import pytest

from agentic_video.systems.paravt.reward import (
    ParaVTWeights,
    format_ok,
    format_score,
    paravt_score,
    same_words,
    scored_text,
    tool_score,
    word_f1,
)
from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.trajectory import EndReason, Trajectory, Turn

CROP = '<tool_call>{"name": "crop_video", "arguments": {"start_time": 4, "end_time": 9}}</tool_call>'
THOUGHT = "<think>look around</think>"  # 11 characters
LOOK = THOUGHT + CROP
REPLY = "<think>it is at the end</think><answer>B</answer>"
SHOWN = ("<tool_response>\na man runs\n</tool_response>",)
WEIGHTS = ParaVTWeights()
PLAIN = replace(WEIGHTS, think=0.3, answer_opened=0.2, answer_closed=0.1, anchor=0.0)
"""The released plain GRPO: no anchors, and the thought counts most."""


def look(text: str = LOOK) -> Turn:
    return Turn(text, Calls((ToolCall("crop_video", {"start_time": 4, "end_time": 9}),)), 9, True, SHOWN, legal_calls=1)


def refused(text: str = LOOK) -> Turn:
    return Turn(text, Calls((ToolCall("refused", {"reason": "?"}),)), 9, True, ("Error",), illegal_calls=1)


def answer(text: str = REPLY) -> Turn:
    return Turn(text, Answer("B"), 9)


def episode(*turns: Turn, end: EndReason = EndReason.ANSWER) -> Trajectory:
    return Trajectory("q", "paravt", (), turns, end)


# text, whether a call was carried out, the score with anchors, the score of plain GRPO
FORMATS = {
    # .2 + .5 + .5 (.4 + .3) + .1 = 1.15; .3 + .3 + .1
    "thought and answer": (REPLY, False, 1.0, 0.7),
    # .2 + .5 + .35 + .3 + .1 = 1.45; .3 + .3 + .3 + .1
    "call, then answer": (LOOK + REPLY, True, 1.0, 1.0),
    # .2 + .5 * .4 + .3 + .1; .3 + .3 + .1
    "only a call": (LOOK, True, 0.8, 0.7),
    # without the .3
    "a call that was refused": (LOOK, False, 0.5, 0.4),
    # .5 + .1; .3 + .1
    "no thought": ("<answer>B</answer>", False, 0.6, 0.4),
    "a thought of nine characters": ("<think>123456789</think><answer>B</answer>", False, 0.6, 0.4),
    "a thought of ten": ("<think>1234567890</think><answer>B</answer>", False, 1.0, 0.7),
    # .2 + .2 + .1; an empty answer is none, but balanced
    "an empty answer": (THOUGHT + "<answer> </answer>", False, 0.5, 0.4),
    # .2 - .15, not balanced; .3
    "a thought that is never closed": ("<think>look around and", False, 0.05, 0.3),
    # -.15
    "only the forced beginning": ("<think>\n", False, -0.15, 0.0),
    # .2 + .2, not balanced
    "an answer that is never closed": (THOUGHT + "<answer>B", False, 0.4, 0.3),
    # .2 + .5 - .15: the open thought ends where the answer begins
    "an answer inside an open thought": ("<think>look around <answer>B</answer>", False, 0.55, 0.6),
    # the call stands before the thought: no .3
    "a call before the thought": (CROP + THOUGHT, True, 0.5, 0.4),
    "nothing": ("", False, 0.0, 0.0),
}


@pytest.mark.parametrize(("text", "called", "score", "plain"), FORMATS.values(), ids=FORMATS)
def test_worked_formats(text: str, called: bool, score: float, plain: float) -> None:
    assert format_score(text, called, WEIGHTS) == pytest.approx(score)
    assert format_score(text, called, PLAIN) == pytest.approx(plain)


def test_code_is_a_call_too() -> None:
    code = "<tool_code>crop_video(start=1, end=2)</tool_code>"
    assert format_score(THOUGHT + code, True, WEIGHTS) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("called", "acc", "score"), [(False, 1.0, 0.0), (True, 0.0, 0.1), (True, 1.0, 0.6), (True, 0.01, 0.6)]
)
def test_worked_tools(called: bool, acc: float, score: float) -> None:
    assert tool_score(called, acc, WEIGHTS) == pytest.approx(score)


def test_a_reply_in_the_scored_text_would_pay_more() -> None:
    """Released, but never paid: the scored text holds what the agent said."""
    meant = replace(WEIGHTS, call_replied=0.3)
    assert [tool_score(True, acc, meant) for acc in (0.0, 1.0)] == pytest.approx([0.3, 0.8])
    assert tool_score(True, 1.0, replace(meant, call_right=0.9)) == 1.0


def test_replies_are_not_in_the_scored_text() -> None:
    assert scored_text(episode(look(), answer())) == LOOK + REPLY
    assert "<tool_response>" not in scored_text(episode(look(), answer()))


# trajectory, accuracy, (acc, format, tool)
CASES = {
    "call, right": (episode(look(), answer()), 1.0, (1.0, 1.0, 0.6)),
    "right at once": (episode(answer()), 1.0, (1.0, 1.0, 0.0)),
    "call, wrong": (episode(look(), answer()), 0.0, (0.0, 1.0, 0.1)),
    "wrong at once": (episode(answer()), 0.0, (0.0, 1.0, 0.0)),
    "half right": (episode(look(), answer()), 0.5, (0.5, 1.0, 0.6)),
    "refused, right": (episode(refused(), answer()), 1.0, (1.0, 1.0, 0.0)),
    "calls to the end": (episode(look(), look(), end=EndReason.TURN_LIMIT), 0.0, (0.0, 0.8, 0.1)),
    "no tags": (episode(answer("<think>\nB")), 1.0, (1.0, -0.15, 0.0)),
    "nothing said": (episode(end=EndReason.ENGINE_ERROR), 0.0, (0.0, 0.0, 0.0)),
}


@pytest.mark.parametrize(("trajectory", "acc", "terms"), CASES.values(), ids=CASES)
def test_worked_cases(trajectory: Trajectory, acc: float, terms: tuple[float, ...]) -> None:
    score = paravt_score(trajectory, acc, WEIGHTS)
    assert tuple(score.terms.values()) == pytest.approx(terms)
    assert score.reward == pytest.approx(sum(terms)) and score.acc == acc


@pytest.mark.parametrize(
    ("trajectory", "ok"),
    [
        (episode(answer()), True),
        (episode(look(), look(LOOK + CROP), answer()), True),
        (episode(refused(), answer()), False),
        (episode(look(CROP), answer()), False),  # no thought
        (episode(look(LOOK + " so"), answer()), False),
        (episode(look(LOOK + "<answer>B</answer>"), answer()), False),
        (episode(answer("<think>seen</think>B")), False),
        (episode(answer("<think> </think><answer>B</answer>")), False),
        (episode(answer(REPLY + "<answer>B</answer>")), False),
        (episode(look(), end=EndReason.TURN_LIMIT), False),
        (episode(Turn("?", Illegal("?"), 1, illegal_calls=1), end=EndReason.ILLEGAL), False),
    ],
)
def test_the_grammar_as_a_whole(trajectory: Trajectory, ok: bool) -> None:
    assert format_ok(trajectory) is ok


@pytest.mark.parametrize(
    ("said", "reference", "f1", "same"),
    [
        ("A red car.", "the red car", 1.0, 1.0),
        ("a fast red car", "red car", 0.8, 0.0),  # 2 of 3 and of 2: 2 * 2 / 5
        ("red red red car", "red car", 2 * 2 / 6, 0.0),  # each word is found once
        ("dog", "red car", 0.0, 0.0),
        ("car red", "red car", 1.0, 0.0),
        ("", "red car", 0.0, 0.0),
        # in the released code both are no words at all, and equal
        (".", "A", 0.0, 0.0),
        ("the", "a", 0.0, 0.0),
        ("red car" + " x" * 3000, "red car", 0.0, 0.0),
    ],
)
def test_open_answers_by_their_words(said: str, reference: str, f1: float, same: float) -> None:
    assert word_f1(said, reference) == pytest.approx(f1)
    assert same_words(said, reference) == same
