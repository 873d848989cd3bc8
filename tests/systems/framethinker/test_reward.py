"""Worked cases of FrameThinker's reward: [format] * [consistent] * (acc + 0.5 lookup + 0.02 choose), bonus if right."""

from dataclasses import replace
from functools import reduce
from operator import add

import pytest

from agentic_video.systems.framethinker.grammar import read_steps
from agentic_video.systems.framethinker.reward import FrameThinkerWeights, format_ok, framethinker_score
from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.trajectory import EndReason, Trajectory, Turn

LARGE = FrameThinkerWeights()
SMALL = FrameThinkerWeights(lookup=0.2, choose=0.0)
ANY_LOOKUP = FrameThinkerWeights(lookup=0.2, choose=0.0, conditional=False)
ANY_LOOK = FrameThinkerWeights(lookup=0.0, choose=0.2, conditional=False)
TURNS = FrameThinkerWeights(bonus="turns")
ANY_TURNS = FrameThinkerWeights(bonus="turns", conditional=False)
UNGATED = replace(LARGE, format_gate=False)
PUBLISHED_LOOKUP = replace(ANY_LOOKUP, format_gate=False)
PUBLISHED_LOOK = replace(ANY_LOOK, format_gate=False)
FORMAT = FrameThinkerWeights(format=1.0)

LOOK = "<think>between 100 and 200</think><action>choose frames between 100 and 200</action>"
REPLY = "<think>seen</think><action>output answer: B</action>"


def look(text: str = LOOK, legal: int = 1) -> Turn:
    call = ToolCall("choose_frames", {"start": 100, "end": 200})
    return Turn(text, Calls((call,)), 9, legal_calls=legal, illegal_calls=1 - legal)


def lookup(number: int = 420) -> Turn:
    text = "<think>when</think><action>get frame number at time 00:42</action>"
    call = ToolCall("frame_number", {"time": "00:42"})
    return Turn(text, Calls((call,)), 9, observation=(f"The frame at 00:42 is: {number}",), legal_calls=1)


def reply(text: str = REPLY) -> Turn:
    return Turn(text, Answer("B"), 9)


def episode(*turns: Turn, end: EndReason = EndReason.ANSWER) -> Trajectory:
    return Trajectory("q", "framethinker", (), turns, end)


ILLEGAL = Turn("<think>x</think><action>dance</action>", Illegal("unknown action"), 9, illegal_calls=1)


@pytest.mark.parametrize(
    ("weights", "trajectory", "acc", "asks_time", "failed", "reward"),
    [
        # the large-scale experiment
        (LARGE, episode(lookup(), look(), reply()), 1.0, True, (), 1.52),  # 1 + 0.5 + 0.02
        (LARGE, episode(lookup(), look(), reply()), 1.0, False, (), 1.02),  # no clock time was asked about
        (LARGE, episode(lookup(0), look(), reply()), 1.0, True, (), 1.02),  # frame 0 is no find
        (LARGE, episode(look(), reply()), 1.0, True, (), 1.02),
        (LARGE, episode(look(), look(), look(), reply()), 1.0, True, (), 1.02),  # three looks earn no more than one
        (LARGE, episode(lookup(), lookup(), look(), reply()), 1.0, True, (), 1.52),  # nor do two lookups
        (LARGE, episode(lookup(0), lookup(7), look(), reply()), 1.0, True, (), 1.52),  # one of them is above 0
        (LARGE, episode(reply()), 1.0, True, (), 1.0),
        (LARGE, episode(reply()), 0.0, True, (), 0.0),
        (LARGE, episode(lookup(), look(), reply()), 0.0, True, (), 0.0),  # no bonus for a wrong answer
        (LARGE, episode(lookup(), look(), reply()), 0.5, True, (), 0.5),  # nor for half a one
        # a failed check takes everything
        (LARGE, episode(lookup(), look(), reply()), 1.0, True, ("fidelity",), 0.0),
        (LARGE, episode(reply()), 1.0, True, ("redundancy", "width"), 0.0),
        (ANY_LOOK, episode(look(), reply()), 0.0, True, ("width",), 0.0),
        # an illegal action ends the episode with nothing, and so does every end without an answer
        (LARGE, episode(lookup(), look(), ILLEGAL, end=EndReason.ILLEGAL), 0.0, True, (), 0.0),
        (ANY_LOOKUP, episode(lookup(), ILLEGAL, end=EndReason.ILLEGAL), 0.0, True, (), 0.0),
        (FORMAT, episode(look(), ILLEGAL, end=EndReason.ILLEGAL), 0.0, True, (), 0.0),
        (ANY_TURNS, episode(look(), look(), end=EndReason.TURN_LIMIT), 0.0, True, (), 0.0),
        (LARGE, episode(end=EndReason.ENGINE_ERROR), 0.0, True, (), 0.0),
        # thoughts and actions must pair up
        (LARGE, episode(reply("<action>output answer: B</action>")), 1.0, True, (), 0.0),
        (LARGE, episode(look(LOOK + LOOK), reply()), 1.0, True, (), 0.0),
        (LARGE, episode(reply("<think>a</think><action>output answer: A</action>" + REPLY)), 1.0, True, (), 0.0),
        (LARGE, episode(look(legal=0), reply()), 1.0, True, (), 0.0),
        (LARGE, episode(reply("<think>a <action> b</think><action>output answer: B</action>")), 1.0, True, (), 0.0),
        (LARGE, episode(reply("\n<think>a</think> so\n<action>output answer: B</action> ")), 1.0, True, (), 1.0),
        # the small-scale experiment
        (SMALL, episode(lookup(), look(), reply()), 1.0, True, (), 1.2),
        (SMALL, episode(look(), reply()), 1.0, True, (), 1.0),
        # rejected: a bonus for acting at all
        (ANY_LOOKUP, episode(lookup(), look(), reply()), 0.0, True, (), 0.2),
        (ANY_LOOKUP, episode(lookup(0), reply()), 0.0, False, (), 0.2),  # asked for or not
        (ANY_LOOKUP, episode(lookup(), lookup(), reply()), 1.0, True, (), 1.2),
        (ANY_LOOKUP, episode(look(), reply()), 0.0, True, (), 0.0),
        (ANY_LOOK, episode(look(), look(), reply()), 0.0, True, (), 0.2),
        (ANY_LOOK, episode(lookup(), reply()), 1.0, True, (), 1.0),
        # rejected: a reward for turns, min(0.2 * (turns - 1), 0.6), instead of the actions' bonus
        (TURNS, episode(lookup(), look(), reply()), 1.0, True, (), 1.4),
        (TURNS, episode(look(), look(), look(), look(), reply()), 1.0, True, (), 1.6),  # capped
        (TURNS, episode(look(), look(), look(), reply()), 0.0, True, (), 0.0),
        (TURNS, episode(reply()), 1.0, True, (), 1.0),
        (ANY_TURNS, episode(look(), look(), reply()), 0.0, True, (), 0.4),
        # without the gate: what is right pays whatever the form of its turns
        (UNGATED, episode(look(LOOK + LOOK), reply()), 1.0, True, (), 1.02),
        (UNGATED, episode(look(LOOK + LOOK), reply()), 0.0, True, (), 0.0),
        (UNGATED, episode(look(), look(), end=EndReason.TURN_LIMIT), 0.0, True, (), 0.0),
        (UNGATED, episode(look(LOOK + LOOK), reply()), 1.0, True, ("width",), 0.0),
        # D.1 as published: 0.2 once an action was executed, whatever follows
        (PUBLISHED_LOOKUP, episode(*(lookup() for _ in range(5)), end=EndReason.TURN_LIMIT), 0.0, False, (), 0.2),
        (PUBLISHED_LOOKUP, episode(lookup(), ILLEGAL, end=EndReason.ILLEGAL), 0.0, True, (), 0.2),
        (PUBLISHED_LOOKUP, episode(reply()), 1.0, True, (), 1.0),
        (PUBLISHED_LOOK, episode(look(LOOK * 4), reply()), 0.0, True, (), 0.2),  # four actions in a turn (Figure 14)
        (PUBLISHED_LOOK, episode(look(legal=0), end=EndReason.ILLEGAL), 0.0, True, (), 0.0),  # refused: not executed
        (PUBLISHED_LOOK, episode(look(), reply()), 1.0, True, ("width",), 0.0),
        # rejected: a format reward
        (FORMAT, episode(reply()), 0.0, True, (), 1.0),
        (FORMAT, episode(lookup(), look(), reply()), 1.0, True, (), 2.52),
    ],
)
def test_worked_cases(
    weights: FrameThinkerWeights,
    trajectory: Trajectory,
    acc: float,
    asks_time: bool,
    failed: tuple,
    reward: float,
) -> None:
    looked_up = asks_time and any(number > 0 for number in read_steps(trajectory).returned_numbers)
    score = framethinker_score(trajectory, acc, looked_up=looked_up, failed=failed, weights=weights)
    assert score.reward == pytest.approx(reward)
    # not by sum(), which compensates from Python 3.12 on
    assert reduce(add, score.terms.values()) == score.reward
    assert score.acc == acc


def test_terms_have_the_same_names_in_every_episode_of_a_run() -> None:
    def names(weights: FrameThinkerWeights, trajectory: Trajectory, acc: float, failed: tuple) -> list[str]:
        return list(framethinker_score(trajectory, acc, looked_up=True, failed=failed, weights=weights).terms)

    assert names(LARGE, episode(lookup(), look(), reply()), 1.0, ()) == ["acc", "lookup", "choose", "format", "ccv"]
    assert names(LARGE, episode(ILLEGAL, end=EndReason.ILLEGAL), 0.0, ("width",)) == names(
        LARGE, episode(reply()), 1.0, ()
    )
    assert names(TURNS, episode(reply()), 1.0, ()) == ["acc", "turns", "format", "ccv"]


def test_the_failed_checks_term_is_what_they_took() -> None:
    score = framethinker_score(
        episode(lookup(), look(), reply()), 1.0, looked_up=True, failed=("width",), weights=LARGE
    )
    assert score.terms["ccv"] == pytest.approx(-1.52)
    assert (score.reward, score.acc, score.format) == (0.0, 1.0, 1.0)


def test_format() -> None:
    assert format_ok(episode(lookup(), look(), reply()))
    assert not format_ok(episode(lookup(), look(), end=EndReason.TURN_LIMIT))
    assert not format_ok(episode(replace(look(), illegal_calls=1), reply()))
    assert not format_ok(episode(reply("<action>output answer: B</action><think>a</think>")))
