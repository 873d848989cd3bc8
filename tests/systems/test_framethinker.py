"""FrameThinker: its grammar, episodes and guard, and its reward by format, consistency, accuracy and actions."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add

import pytest

from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play_attempts
from agentic_video.rollout.policy import EngineError, Policy, ScriptedPolicy, Utterance
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.framethinker.consistency import ConsistencyRules
from agentic_video.systems.framethinker.grammar import parse_turn, read_steps, split_turn
from agentic_video.systems.framethinker.reward import FrameThinkerWeights, format_ok, framethinker_score
from agentic_video.systems.framethinker.system import FrameThinker, GuardRules
from agentic_video.systems.prompts import load_prompt
from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory, Turn
from tests.conftest import MemorySource
from tests.systems.played import ended, run


@pytest.fixture
def asked(qa: VideoQA) -> VideoQA:
    """A question that holds a clock time."""
    return replace(qa, question="What colour flashes at 00:42?")


LOOKUP = "<think>when is 00:42</think><action>get frame number at time 00:42</action>"
LOOK = "<think>look between 410 and 430</think><action>choose frames between 410 and 430</action>"
ELSEWHERE = "<think>look between 100 and 200</think><action>choose frames between 100 and 200</action>"
UNFAITHFUL = "<think>look near 420</think><action>choose frames between 100 and 200</action>"
REPLY = "<think>it is green B</think><action>output answer: B</action>"
SMALL = FrameThinker(
    overview_frames=6,
    look_frames=4,
    max_width=28,
    max_height=28,
    long_overview_frames=6,
    long_look_frames=4,
    max_turns=4,
    prompt="framethinker_short",
)


def reward(system: System, trajectory: Trajectory, qa: VideoQA) -> float:
    return asyncio.run(system.score(trajectory, qa, Graders())).reward


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (LOOK, Calls((ToolCall("choose_frames", {"start": 410, "end": 430}),))),
        (LOOKUP, Calls((ToolCall("frame_number", {"time": "00:42"}),))),
        (REPLY, Answer("B")),
        ("<think>x</think><action>\noutput answer: a red car \n</action>", Answer("a red car")),
        (LOOK + REPLY, Answer("B")),  # the last action counts
        (REPLY + LOOKUP, Calls((ToolCall("frame_number", {"time": "00:42"}),))),
        ("<think>a <action>output answer: A</action></think>", Illegal("no action after a thought")),
        ("", Illegal("no action after a thought")),
        (
            "<think>x</think><action>" + " " * 300 + "choose frames between 1 and 99</action>",
            Calls((ToolCall("choose_frames", {"start": 1, "end": 99}),)),
        ),
        ("<think>x</think><action>choose frames between" + " " * 300 + "1 and 99</action>", Illegal("unknown action")),
    ],
)
def test_reading_a_turn(text: str, action: object) -> None:
    assert parse_turn(text) == action


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("<think>a</think><action>b</action>", ("a", "b")),
        ("x<think>a</think>y<action>b</action>z", ("a", "b")),
        ("<think>a</think><action>b</action><action>c</action>", ("a", "c")),
        ("<think>a</think><think>b</think><action>c</action>", ("b", "c")),
        ("<think>a</think><action>b<action>c</action>", ("a", "c")),
        ("<action>b</action>", None),
        ("<action>b</action><think>a</think>", None),
        ("<think>a<action>b</action>", None),
        ("a</think><action>b</action>", None),
        ("<think>a</think><action>b", None),
        ("<think>a</think>b</action>", None),
        ("", None),
    ],
)
def test_the_last_action_counts(text: str, blocks: tuple[str, str] | None) -> None:
    assert split_turn(text) == blocks


LARGE = FrameThinkerWeights()
SMALLSCALE = FrameThinkerWeights(lookup=0.2, choose=0.0)
ANY_LOOKUP = FrameThinkerWeights(lookup=0.2, choose=0.0, conditional=False)
ANY_LOOK = FrameThinkerWeights(lookup=0.0, choose=0.2, conditional=False)
TURNS = FrameThinkerWeights(bonus="turns")
ANY_TURNS = FrameThinkerWeights(bonus="turns", conditional=False)
UNGATED = replace(LARGE, format_gate=False)
PUBLISHED_LOOKUP = replace(ANY_LOOKUP, format_gate=False)
PUBLISHED_LOOK = replace(ANY_LOOK, format_gate=False)
FORMAT = FrameThinkerWeights(format=1.0)


def look(text: str = ELSEWHERE, legal: int = 1) -> Turn:
    call = ToolCall("choose_frames", {"start": 100, "end": 200})
    return Turn(text, Calls((call,)), 9, legal_calls=legal, illegal_calls=1 - legal)


def lookup(number: int = 420) -> Turn:
    text = "<think>when</think><action>get frame number at time 00:42</action>"
    call = ToolCall("frame_number", {"time": "00:42"})
    return Turn(text, Calls((call,)), 9, observation=(f"The frame at 00:42 is: {number}",), legal_calls=1)


def replied(text: str = REPLY) -> Turn:
    return Turn(text, Answer("B"), 9)


ILLEGAL = Turn("<think>x</think><action>dance</action>", Illegal("unknown action"), 9, illegal_calls=1)


@pytest.mark.parametrize(
    ("weights", "trajectory", "acc", "asks_time", "failed", "reward"),
    [
        # the large-scale experiment
        (LARGE, ended(lookup(), look(), replied()), 1.0, True, (), 1.52),  # 1 + 0.5 + 0.02
        (LARGE, ended(lookup(), look(), replied()), 1.0, False, (), 1.02),  # no clock time was asked about
        (LARGE, ended(lookup(0), look(), replied()), 1.0, True, (), 1.02),  # frame 0 is no find
        (LARGE, ended(look(), replied()), 1.0, True, (), 1.02),
        (LARGE, ended(look(), look(), look(), replied()), 1.0, True, (), 1.02),  # three looks earn no more than one
        (LARGE, ended(lookup(), lookup(), look(), replied()), 1.0, True, (), 1.52),  # nor do two lookups
        (LARGE, ended(lookup(0), lookup(7), look(), replied()), 1.0, True, (), 1.52),  # one of them is above 0
        (LARGE, ended(replied()), 1.0, True, (), 1.0),
        (LARGE, ended(replied()), 0.0, True, (), 0.0),
        (LARGE, ended(lookup(), look(), replied()), 0.0, True, (), 0.0),  # no bonus for a wrong answer
        (LARGE, ended(lookup(), look(), replied()), 0.5, True, (), 0.5),  # nor for half a one
        # a failed check takes everything
        (LARGE, ended(lookup(), look(), replied()), 1.0, True, ("fidelity",), 0.0),
        (LARGE, ended(replied()), 1.0, True, ("redundancy", "width"), 0.0),
        (ANY_LOOK, ended(look(), replied()), 0.0, True, ("width",), 0.0),
        # an illegal action ends the ended with nothing, and so does every end without an answer
        (LARGE, ended(lookup(), look(), ILLEGAL, end=EndReason.ILLEGAL), 0.0, True, (), 0.0),
        (ANY_LOOKUP, ended(lookup(), ILLEGAL, end=EndReason.ILLEGAL), 0.0, True, (), 0.0),
        (FORMAT, ended(look(), ILLEGAL, end=EndReason.ILLEGAL), 0.0, True, (), 0.0),
        (ANY_TURNS, ended(look(), look(), end=EndReason.TURN_LIMIT), 0.0, True, (), 0.0),
        (LARGE, ended(end=EndReason.ENGINE_ERROR), 0.0, True, (), 0.0),
        # thoughts and actions must pair up
        (LARGE, ended(replied("<action>output answer: B</action>")), 1.0, True, (), 0.0),
        (LARGE, ended(look(ELSEWHERE + ELSEWHERE), replied()), 1.0, True, (), 0.0),
        (LARGE, ended(replied("<think>a</think><action>output answer: A</action>" + REPLY)), 1.0, True, (), 0.0),
        (LARGE, ended(look(legal=0), replied()), 1.0, True, (), 0.0),
        (LARGE, ended(replied("<think>a <action> b</think><action>output answer: B</action>")), 1.0, True, (), 0.0),
        (LARGE, ended(replied("\n<think>a</think> so\n<action>output answer: B</action> ")), 1.0, True, (), 1.0),
        # the small-scale experiment
        (SMALLSCALE, ended(lookup(), look(), replied()), 1.0, True, (), 1.2),
        (SMALLSCALE, ended(look(), replied()), 1.0, True, (), 1.0),
        # rejected: a bonus for acting at all
        (ANY_LOOKUP, ended(lookup(), look(), replied()), 0.0, True, (), 0.2),
        (ANY_LOOKUP, ended(lookup(0), replied()), 0.0, False, (), 0.2),  # asked for or not
        (ANY_LOOKUP, ended(lookup(), lookup(), replied()), 1.0, True, (), 1.2),
        (ANY_LOOKUP, ended(look(), replied()), 0.0, True, (), 0.0),
        (ANY_LOOK, ended(look(), look(), replied()), 0.0, True, (), 0.2),
        (ANY_LOOK, ended(lookup(), replied()), 1.0, True, (), 1.0),
        # rejected: a reward for turns, min(0.2 * (turns - 1), 0.6), instead of the actions' bonus
        (TURNS, ended(lookup(), look(), replied()), 1.0, True, (), 1.4),
        (TURNS, ended(look(), look(), look(), look(), replied()), 1.0, True, (), 1.6),  # capped
        (TURNS, ended(look(), look(), look(), replied()), 0.0, True, (), 0.0),
        (TURNS, ended(replied()), 1.0, True, (), 1.0),
        (ANY_TURNS, ended(look(), look(), replied()), 0.0, True, (), 0.4),
        # without the gate: what is right pays whatever the form of its turns
        (UNGATED, ended(look(ELSEWHERE + ELSEWHERE), replied()), 1.0, True, (), 1.02),
        (UNGATED, ended(look(ELSEWHERE + ELSEWHERE), replied()), 0.0, True, (), 0.0),
        (UNGATED, ended(look(), look(), end=EndReason.TURN_LIMIT), 0.0, True, (), 0.0),
        (UNGATED, ended(look(ELSEWHERE + ELSEWHERE), replied()), 1.0, True, ("width",), 0.0),
        # D.1 as published: 0.2 once an action was executed, whatever follows
        (PUBLISHED_LOOKUP, ended(*(lookup() for _ in range(5)), end=EndReason.TURN_LIMIT), 0.0, False, (), 0.2),
        (PUBLISHED_LOOKUP, ended(lookup(), ILLEGAL, end=EndReason.ILLEGAL), 0.0, True, (), 0.2),
        (PUBLISHED_LOOKUP, ended(replied()), 1.0, True, (), 1.0),
        (
            PUBLISHED_LOOK,
            ended(look(ELSEWHERE * 4), replied()),
            0.0,
            True,
            (),
            0.2,
        ),  # four actions in a turn (Figure 14)
        (PUBLISHED_LOOK, ended(look(legal=0), end=EndReason.ILLEGAL), 0.0, True, (), 0.0),  # refused: not executed
        (PUBLISHED_LOOK, ended(look(), replied()), 1.0, True, ("width",), 0.0),
        # rejected: a format reward
        (FORMAT, ended(replied()), 0.0, True, (), 1.0),
        (FORMAT, ended(lookup(), look(), replied()), 1.0, True, (), 2.52),
    ],
)
def test_worked_cases(
    weights: FrameThinkerWeights, trajectory: Trajectory, acc: float, asks_time: bool, failed: tuple, reward: float
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

    assert names(LARGE, ended(lookup(), look(), replied()), 1.0, ()) == ["acc", "lookup", "choose", "format", "ccv"]
    assert names(LARGE, ended(ILLEGAL, end=EndReason.ILLEGAL), 0.0, ("width",)) == names(
        LARGE, ended(replied()), 1.0, ()
    )
    assert names(TURNS, ended(replied()), 1.0, ()) == ["acc", "turns", "format", "ccv"]


def test_the_failed_checks_term_is_what_they_took() -> None:
    score = framethinker_score(
        ended(lookup(), look(), replied()), 1.0, looked_up=True, failed=("width",), weights=LARGE
    )
    assert score.terms["ccv"] == pytest.approx(-1.52)
    assert (score.reward, score.acc, score.format) == (0.0, 1.0, 1.0)


def test_format() -> None:
    assert format_ok(ended(lookup(), look(), replied()))
    assert not format_ok(ended(lookup(), look(), end=EndReason.TURN_LIMIT))
    assert not format_ok(ended(replace(look(), illegal_calls=1), replied()))
    assert not format_ok(ended(replied("<action>output answer: B</action><think>a</think>")))


def test_a_released_overview_is_cut_to_whole_numbers(asked: VideoQA, source: MemorySource) -> None:
    # linspace(0, 599, 6) = 0, 119.8, 239.6, 359.4, 479.2, 599
    released, cut = replace(SMALL, frame_times="released"), [0, 119, 239, 359, 479, 599]
    assert [frame.index for frame in run(released, asked, source, REPLY).frames] == cut
    # looks are cut in both
    looks = [run(system, asked, source, LOOK, REPLY).turns[0].observation for system in (SMALL, released)]
    assert looks[0] == looks[1]


def test_short_and_long_videos(asked: VideoQA) -> None:
    # one frame a second keeps the arrays few; 1920x1080 fits 640x360 by a third, 448x252 by 0.2333
    for seconds, frames, size in ((300.0, 8, (640, 360)), (301.0, 12, (448, 252))):
        source = MemorySource(seconds, fps=1.0, size=(1920, 1080))
        look = "<think>0 100</think><action>choose frames between 0 and 100</action>"
        trajectory = run(FrameThinker(), asked, source, look, REPLY)
        assert len(trajectory.frames) == 2 * frames
        assert {(frame.width, frame.height) for frame in trajectory.frames} == {size}
        assert f"shows {frames} frames" in str(trajectory.opening[0].parts[0])


def test_overview_and_look_have_counts_of_their_own(asked: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, asked, source, LOOK, REPLY)
    assert len(trajectory.frames) == 6 + 4
    observation = trajectory.turns[0].observation
    # linspace(411, 429, 4) = 411, 417, 423, 429
    assert [part.index for part in observation if isinstance(part, FrameRef)] == [411, 417, 423, 429]
    assert [part for part in observation if isinstance(part, str)] == [
        "frame 411: ",
        "\nframe 417: ",
        "\nframe 423: ",
        "\nframe 429: ",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<action>output answer: B</action>",  # no thought
        "<think>x</think> the answer is B",
        "<think>x</think><action>dance</action>",
        "<think>x</think><action>output answer: </action>",
        "<think>x</think><action>choose frames between 430 and 410</action>",
        "<think>x</think><action>choose frames between 410 and 414</action>",  # no more than four frames
        "<think>x</think><action>choose frames between 600 and 900</action>",
        "<think>x</think><action>get frame number at time 42</action>",
    ],
)
def test_an_illegal_action_ends_the_episode_with_nothing(text: str, asked: VideoQA, source: MemorySource) -> None:
    generous = replace(SMALL, weights=FrameThinkerWeights(conditional=False, format=1.0))
    trajectory = run(generous, asked, source, LOOKUP, text)
    assert (trajectory.end, trajectory.illegal_calls) == (EndReason.ILLEGAL, 1)
    assert reward(generous, trajectory, asked) == 0.0


def test_the_lookup_bonus_needs_a_clock_time_in_question_or_options(asked: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, asked, source, LOOKUP, LOOK, REPLY)
    assert reward(SMALL, trajectory, replace(asked, question="What flashes at 42 s?")) == pytest.approx(1.02)
    options = replace(asked, question="When is it?", options=("00:11", "00:42", "00:50", "never"))
    assert reward(SMALL, trajectory, options) == pytest.approx(1.52)


@pytest.mark.parametrize(
    "texts", [(UNFAITHFUL, REPLY), (LOOKUP, REPLY), (LOOK, LOOK, REPLY), (LOOKUP, ELSEWHERE, REPLY)]
)
def test_a_failed_check_takes_the_reward_unless_switched_off(
    texts: tuple[str, ...], asked: VideoQA, source: MemorySource
) -> None:
    trajectory = run(SMALL, asked, source, *texts)
    assert trajectory.answer == "B"  # training isn't guarded: the episode continues to its end
    assert reward(SMALL, trajectory, asked) == 0.0
    assert reward(replace(SMALL, ccv=ConsistencyRules(enable=False)), trajectory, asked) >= 1.0


def test_a_check_alone_can_be_switched_off(asked: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, asked, source, UNFAITHFUL, REPLY)
    assert reward(replace(SMALL, ccv=ConsistencyRules(fidelity=False)), trajectory, asked) == pytest.approx(1.02)


# The guard


def attempts(system: FrameThinker, qa: VideoQA, source: MemorySource, *scripts: tuple[str, ...]) -> list[Trajectory]:
    """Play as in evaluation; each attempt says its own script. All scripts must be asked for."""
    left = list(scripts)

    def make(current: System) -> Policy:
        texts = left.pop(0)
        return ScriptedPolicy(lambda view: texts[len(view.turns)])

    played = list(asyncio.run(play_attempts(system, make, qa, source)))
    assert not left
    return played


def instructions(trajectory: Trajectory) -> str:
    return str(trajectory.opening[0].parts[0])


@pytest.mark.parametrize(
    "bad",
    [
        (UNFAITHFUL, REPLY),
        (LOOKUP, REPLY),  # an answer straight after a lookup: only the finished attempt shows it
        (LOOKUP, ELSEWHERE, REPLY),
        (LOOK, LOOK, REPLY),
        ("<think>x</think><action>dance</action>",),
        (LOOKUP, LOOK, ELSEWHERE, LOOK),  # never answers
    ],
)
def test_a_failed_attempt_is_played_again(bad: tuple[str, ...], asked: VideoQA, source: MemorySource) -> None:
    played = attempts(SMALL, asked, source, bad, (LOOKUP, LOOK, REPLY))
    assert len(played) == 2
    assert instructions(played[0]) == instructions(played[1])
    assert reward(SMALL, played[-1], asked) == pytest.approx(1.52)


def test_after_the_attempts_the_question_is_asked_directly(asked: VideoQA, source: MemorySource) -> None:
    played = attempts(SMALL, asked, source, (UNFAITHFUL, REPLY), (LOOKUP, REPLY), (REPLY,))
    assert len(played) == 3
    assert instructions(played[2]) == load_prompt("framethinker_direct").strip()
    assert [frame.index for frame in played[2].frames] == [0, 120, 240, 359, 479, 599]
    assert played[2].answer == "B"
    assert reward(SMALL, played[2], asked) == 1.0


def test_the_direct_answer_is_accepted_whatever_it_is(asked: VideoQA, source: MemorySource) -> None:
    bad = (UNFAITHFUL, REPLY)
    asks_on = attempts(SMALL, asked, source, bad, bad, (LOOK,))
    assert (len(asks_on), asks_on[-1].end) == (3, EndReason.TURN_LIMIT)
    nonsense = attempts(SMALL, asked, source, bad, bad, ("B",))
    assert (len(nonsense), nonsense[-1].end) == (3, EndReason.ILLEGAL)


def test_number_of_attempts(asked: VideoQA, source: MemorySource) -> None:
    bad = (UNFAITHFUL, REPLY)
    once = replace(SMALL, guard=GuardRules(attempts=1))
    assert len(attempts(once, asked, source, bad, (REPLY,))) == 2
    four = replace(SMALL, guard=GuardRules(attempts=4))
    assert len(attempts(four, asked, source, bad, bad, bad, bad, (REPLY,))) == 5


def test_the_guard_makes_the_chosen_checks_also_where_the_reward_does_not(asked: VideoQA, source: MemorySource) -> None:
    unfiltered = replace(SMALL, ccv=ConsistencyRules(enable=False))
    assert len(attempts(unfiltered, asked, source, (UNFAITHFUL, REPLY), (REPLY,))) == 2
    unchecked = replace(SMALL, ccv=ConsistencyRules(fidelity=False))
    assert len(attempts(unchecked, asked, source, (UNFAITHFUL, REPLY))) == 1


class Silent(ScriptedPolicy):
    async def say(self, view: EpisodeView) -> Utterance:
        raise EngineError("down")


def test_an_engine_that_fails_is_not_asked_again(asked: VideoQA, source: MemorySource) -> None:
    make: Callable[[System], Policy] = lambda current: Silent(lambda view: "")  # noqa: E731
    played = asyncio.run(play_attempts(SMALL, make, asked, source))
    assert [trajectory.end for trajectory in played] == [EndReason.ENGINE_ERROR]
