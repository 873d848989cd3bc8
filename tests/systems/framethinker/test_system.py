"""FrameThinker's episodes: what is shown, what actions do, when it ends, the guard."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from agentic_video.rollout.episode import play_attempts
from agentic_video.rollout.policy import EngineError, Policy, ScriptedPolicy, Utterance
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.framethinker.consistency import ConsistencyRules
from agentic_video.systems.framethinker.reward import FrameThinkerWeights
from agentic_video.systems.framethinker.system import FrameThinker, GuardRules
from agentic_video.systems.prompts import load_prompt
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory
from tests.conftest import MemorySource
from tests.systems.framethinker.texts import ELSEWHERE, LOOK, LOOKUP, REPLY, SMALL, UNFAITHFUL, reward, run


def test_the_opening_is_instructions_then_question_and_numbered_frames(asked: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, asked, source, REPLY)
    system, user = trajectory.opening
    assert (system.role, user.role) == ("system", "user")
    assert "output answer: X" in str(system.parts[0])
    assert user.parts[0] == "What colour flashes at 00:42?\nA. red\nB. green\nC. blue\nD. grey\n"
    # linspace(0, 599, 6) = 0, 119.8, 239.6, 359.4, 479.2, 599
    assert [frame.index for frame in trajectory.frames] == [0, 120, 240, 359, 479, 599]
    assert user.parts[1] == "frame 0: "
    assert user.parts[3::2] == tuple(f"\nframe {index}: " for index in (120, 240, 359, 479, 599))


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


def test_a_lookup_is_answered_in_words(asked: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, asked, source, LOOKUP, LOOK, REPLY)
    assert trajectory.turns[0].observation == ("The frame at 00:42 is: 420",)
    assert (trajectory.tool_calls, trajectory.illegal_calls, trajectory.end) == (2, 0, EndReason.ANSWER)
    assert reward(SMALL, trajectory, asked) == pytest.approx(1.52)


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
