"""FrameMind: its grammar, ladder, reward (acc + format {0, -1} + s (0.2 + 0.8 acc) + 0.5 [2 or 3 turns], s 1.0 or
1.2), and episodes."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.graders.base import Graders
from agentic_video.graders.judge import EndpointError
from agentic_video.systems.framemind.grammar import evidence_header, parse_turn, read_call
from agentic_video.systems.framemind.ladder import FrameSampling, ladder_sampling
from agentic_video.systems.framemind.reward import FrameMindWeights, format_ok, framemind_score, used_tools
from agentic_video.systems.framemind.system import FrameMind
from agentic_video.types.action import REFUSED, Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, RecordedPart, Trajectory, Turn
from tests.conftest import MemorySource
from tests.systems.played import ended, run, times

SMALL = FrameMind(
    low=FrameSampling(8, 28, 28),
    high=FrameSampling(4, 56, 56),
    tool_side=28,
    clip_min_frames=4,
    clip_max_frames=6,
    max_images=24,
)
REPLY = "<think>seen</think><answer>B</answer>"
REST = "<think>hm</think><turn_sum>nothing yet</turn_sum>"


def at(seconds: object) -> str:
    return f'<tool_call>{{"name": "FrameAt", "arguments": {{"t": {seconds}}}}}</tool_call>'


def clip(start: object, end: object) -> str:
    return f'<tool_call>{{"name": "VideoClip", "arguments": {{"t_start": {start}, "t_end": {end}}}}}</tool_call>'


def look(*calls: str) -> str:
    return f"<think>closer</think>{''.join(calls)}<turn_sum>a</turn_sum>"


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (look(at(42)), Calls((ToolCall("FrameAt", {"t": 42.0}),))),
        (REST, Calls(())),
        (look(clip(1, 2.5)), Calls((ToolCall("VideoClip", {"t_start": 1.0, "t_end": 2.5}),))),
        (REPLY, Answer("B")),
        ("<answer>A</answer> no, <answer> B </answer>", Answer("B")),
        (look(at(42)) + REPLY, Answer("B")),  # an answer stops
        ("<think>maybe <answer>A</answer></think><answer>B</answer>", Answer("B")),  # a thought is no answer
        ("<think>maybe <answer>A</answer></think><turn_sum>a</turn_sum>", Calls(())),
        (f"<think>{at(42)}</think><turn_sum>a</turn_sum>", Calls(())),  # nor a call
        (f"<think>a</think><turn_sum>{at(42)}</turn_sum>", Calls(())),
        ("<think>the <turn_sum>a</turn_sum>", Calls(())),  # a thought that is never closed hides nothing
        ("<think>the <answer>B</answer>", Answer("B")),
        ("<tool_call>{}<turn_sum>a</turn_sum>", Calls(())),  # a call that isn't closed is none
    ],
)
def test_reading_a_turn(text: str, action: Action) -> None:
    assert parse_turn(text, 3) == action


@pytest.mark.parametrize("text", ["", "B", "<answer>B", "</answer><answer>", "</turn_sum>", "<think>a</turn_sum>"])
def test_what_is_neither(text: str) -> None:
    assert parse_turn(text, 3) == Illegal("neither a turn summary nor an answer")


def test_calls_beyond_the_cap_become_one_refusal() -> None:
    once, left = ToolCall("FrameAt", {"t": 42.0}), "only 2 calls are allowed in a turn, the others were left out"
    assert parse_turn(look(at(42), at(42)), 2) == Calls((once, once))
    assert parse_turn(look(*[at(42)] * 9), 2) == Calls((once, once, ToolCall(REFUSED, {"reason": left})))


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ('{"name": "FrameAt", "arguments": {"t": 3}}', ToolCall("FrameAt", {"t": 3.0})),
        ('{"name": "FrameAt", "arguments": {}}', ToolCall("FrameAt", {})),  # what it lacks, the tool says
        ("FrameAt(3)", ToolCall(REFUSED, {"reason": "the call is not valid JSON"})),
        (
            '{"name": "refused", "arguments": {"reason": "x"}}',
            ToolCall(REFUSED, {"reason": "there is no such tool, only FrameAt and VideoClip"}),
        ),
        ('{"name": "FrameAt", "arguments": [3]}', ToolCall(REFUSED, {"reason": "arguments must be a JSON object"})),
        (
            '{"name": "FrameAt", "arguments": {"t": "3"}}',
            ToolCall(REFUSED, {"reason": "every argument must be a number"}),
        ),
    ],
)
def test_what_can_be_read_of_a_call(body: str, call: ToolCall) -> None:
    assert read_call(body) == call


LOW, HIGH = FrameSampling(64, 224, 224), FrameSampling(32, 448, 448)


def test_the_eight_views_of_the_paper() -> None:
    # Equations 2 and 3 with r = 0, 1/7 .. 1: 64 - 32 r frames is 64, 59.43, 54.86, 50.29, 45.71, 41.14, 36.57, 32;
    # 224 + 224 r pixels is 224, 256, 288, 320, 352, 384, 416, 448, in units of 28: 8, 9.14, 10.29, 11.43, 12.57,
    # 13.71, 14.86, 16
    views = [ladder_sampling(LOW, HIGH, index, 8, 28) for index in range(8)]
    assert [view.frames for view in views] == [64, 59, 55, 50, 46, 41, 37, 32]
    assert [view.height for view in views] == [224, 252, 280, 308, 364, 392, 420, 448]
    assert [view.width for view in views] == [view.height for view in views]


def test_a_group_of_three_has_the_middle() -> None:
    # r = 1/2: 48 frames of 336 = 12 * 28 pixels
    assert ladder_sampling(LOW, HIGH, 1, 3, 28) == FrameSampling(48, 336, 336)


def test_a_rollout_beyond_the_group_begins_the_ladder_again() -> None:
    assert ladder_sampling(LOW, HIGH, 9, 8, 28) == ladder_sampling(LOW, HIGH, 1, 8, 28)


def test_sides_are_at_least_one_factor() -> None:
    assert ladder_sampling(FrameSampling(2, 5, 5), FrameSampling(2, 5, 5), 0, 1, 28) == FrameSampling(2, 28, 28)


@given(st.integers(2, 64), st.sampled_from([1, 14, 28, 32]))
def test_the_ladder_only_climbs(group: int, factor: int) -> None:
    views = [ladder_sampling(LOW, HIGH, index, group, factor) for index in range(group)]
    assert [view.frames for view in views] == sorted((view.frames for view in views), reverse=True)
    assert [view.height for view in views] == sorted(view.height for view in views)
    assert (views[0].frames, views[-1].frames) == (64, 32)
    assert all(view.height % factor == 0 for view in views)


FRAME_AT, CLIP = "FrameAt", "VideoClip"
CALL = at(4)
PICTURE = FrameRef(40, 4.0, 448, 448)


def evidence(*tools: str) -> tuple[RecordedPart, ...]:
    shown = [part for tool in tools for part in (evidence_header(tool), "<4.00s>", PICTURE, "\n")]
    return ("<tool_response>\n", *shown, "</tool_response>")


def looked(*tools: str, text: str = look(at(4))) -> Turn:
    """A turn whose calls were carried out."""
    calls = Calls(tuple(ToolCall(tool, {"t": 4.0}) for tool in tools))
    return Turn(text, calls, 9, observation=evidence(*tools), legal_calls=len(tools))


def refused(text: str = look(at(4))) -> Turn:
    shown = ("<tool_response>\n", "ERROR: t lies outside the video.\n", "</tool_response>")
    return Turn(text, Calls((ToolCall(FRAME_AT, {"t": 99.0}),)), 9, observation=shown, illegal_calls=1)


def replied(text: str = REPLY) -> Turn:
    return Turn(text, Answer("B"), 9)


TWO_ANSWERS = replied("<think>a</think><answer>A</answer><answer>B</answer>")
STRAY_TEXT = replied("<think>a</think> so <answer>B</answer>")
CUT = Turn("<think>hm", Illegal("cut"), 9, finished=False, illegal_calls=1)
UNSHOWN = Turn(look(at(4)), Calls((ToolCall(FRAME_AT, {"t": 4.0}),)), 9, legal_calls=1)

# trajectory, acc, reward where turns are counted (Eq. 8), reward where closed summaries are (Eq. 13)
CASES = {
    "right, one tool": (ended(looked(FRAME_AT), replied()), 1.0, 2.5, 2.0),  # 1 + 0 + 1.0 + 0.5
    "right, the other tool": (ended(looked(CLIP), replied()), 1.0, 2.5, 2.0),
    "right, both at once": (ended(looked(FRAME_AT, CLIP), replied()), 1.0, 2.7, 2.2),  # 1 + 0 + 1.2 + 0.5
    "right, both in two turns": (ended(looked(CLIP), looked(FRAME_AT), replied()), 1.0, 2.7, 2.7),
    "right, one tool twice": (ended(looked(CLIP), looked(CLIP), replied()), 1.0, 2.5, 2.5),  # no more than once
    "right at once": (ended(replied()), 1.0, 1.0, 1.0),
    "right, two turns, no tool": (ended(looked(text=REST), replied()), 1.0, 1.5, 1.0),
    "wrong at once": (ended(replied()), 0.0, 0.0, 0.0),
    "wrong, one tool": (ended(looked(FRAME_AT), replied()), 0.0, 0.7, 0.2),  # 0 + 0 + 0.2 + 0.5
    "wrong, both tools": (ended(looked(FRAME_AT, CLIP), replied()), 0.0, 0.74, 0.24),  # 1.2 * 0.2 = 0.24
    "wrong, both in two turns": (ended(looked(CLIP), looked(FRAME_AT), replied()), 0.0, 0.74, 0.74),
    "refused, right": (ended(refused(), replied()), 1.0, 1.5, 1.0),  # no tool use, but no broken format either
    "refused, corrected, right": (ended(refused(), looked(CLIP), replied()), 1.0, 2.5, 2.5),
    "two answers": (ended(TWO_ANSWERS), 1.0, 0.0, 0.0),  # 1 - 1
    "text between blocks": (ended(looked(CLIP), STRAY_TEXT), 1.0, 1.5, 1.0),
    "no thought": (ended(replied("<answer>B</answer>")), 1.0, 0.0, 0.0),
    "no thought earlier": (ended(looked(text="<turn_sum>a</turn_sum>"), replied()), 1.0, 0.5, 0.0),
    "unanswered after three": (
        ended(looked(CLIP), looked(CLIP), looked(text=look(at(4))), end=EndReason.TURN_LIMIT),
        0.0,
        -0.3,
        -0.3,
    ),  # 0 - 1 + 0.2 + 0.5
    "cut in the second turn": (ended(looked(CLIP), CUT, end=EndReason.TOKEN_BUDGET), 0.0, -0.3, -0.8),
    "nothing": (ended(CUT, end=EndReason.TOKEN_BUDGET), 0.0, -1.0, -1.0),
    "frames that didn't fit": (ended(UNSHOWN, end=EndReason.IMAGE_BUDGET), 0.0, -1.0, -1.0),
    "no turn at all": (ended(end=EndReason.ENGINE_ERROR), 0.0, -1.0, -1.0),
}


@pytest.mark.parametrize(("trajectory", "acc", "by_turns", "by_sums"), CASES.values(), ids=CASES)
def test_worked_cases(trajectory: Trajectory, acc: float, by_turns: float, by_sums: float) -> None:
    assert framemind_score(trajectory, acc, FrameMindWeights()).reward == pytest.approx(by_turns)
    sums = FrameMindWeights(turn_bonus="turn_sums")
    assert framemind_score(trajectory, acc, sums).reward == pytest.approx(by_sums)


@pytest.mark.parametrize(
    ("trajectory", "acc", "reward"),
    [
        (ended(looked(FRAME_AT), replied()), 1.0, 2.5),  # 1 + 0 + 1.0 * 1 + 0.5
        (ended(looked(FRAME_AT, CLIP), replied()), 1.0, 2.7),
        (ended(looked(FRAME_AT), replied()), 0.0, 0.5),  # the turn bonus alone
        (ended(looked(FRAME_AT, CLIP), replied()), 0.0, 0.5),
    ],
)
def test_strict_gating(trajectory: Trajectory, acc: float, reward: float) -> None:
    assert framemind_score(trajectory, acc, FrameMindWeights(exploration=0.0)).reward == pytest.approx(reward)


def test_terms_by_name() -> None:
    score = framemind_score(ended(looked(FRAME_AT, CLIP), STRAY_TEXT), 1.0, FrameMindWeights())
    assert score.terms == pytest.approx({"acc": 1.0, "format": -1.0, "tool": 1.2, "turn": 0.5})
    assert (score.acc, score.format) == (1.0, 0.0)
    assert sum(score.terms.values()) == score.reward


def test_more_turns_than_three_earn_no_bonus() -> None:
    four = ended(*[looked(CLIP)] * 3, replied())
    assert framemind_score(four, 1.0, FrameMindWeights()).terms["turn"] == 0.0
    # three closed summaries
    assert framemind_score(four, 1.0, FrameMindWeights(turn_bonus="turn_sums")).terms["turn"] == 0.5


def test_summaries_heaped_into_one_turn_count_once() -> None:
    heaped = ended(replied("<think>a</think><turn_sum>a</turn_sum><turn_sum>b</turn_sum><answer>B</answer>"))
    score = framemind_score(heaped, 1.0, FrameMindWeights(turn_bonus="turn_sums"))
    assert (score.terms["turn"], score.format) == (0.0, 0.0)


def test_a_tool_is_used_when_its_frames_were_shown() -> None:
    assert used_tools(ended(looked(FRAME_AT), looked(CLIP), replied())) == {FRAME_AT, CLIP}
    assert used_tools(ended(refused(), replied())) == set()
    # naming a tool, or imitating its evidence, is not using it
    forged = replied(f"<think>{evidence_header(CLIP)}</think><answer>B</answer>")
    assert used_tools(ended(forged)) == set()


@pytest.mark.parametrize(
    ("turns", "ok"),
    [
        ((replied(),), True),
        ((replied(" <think>a</think>\n<think>b</think>\n<answer>B</answer>\n"),), True),  # several thoughts
        ((looked(text=REST), replied()), True),
        ((looked(text="<think>a</think>" + 2 * CALL + "<think>b</think><turn_sum>c</turn_sum>"), replied()), True),
        ((looked(text=look(at(4)) + "x"), replied()), False),  # text behind
        ((looked(text=CALL + "<turn_sum>a</turn_sum>"), replied()), False),  # a call before any thought
        ((looked(text=2 * look(at(4))), replied()), False),  # two summaries
        ((looked(text="<think>a</think><answer>A</answer><turn_sum>b</turn_sum>"), replied()), False),
        ((looked(text="<think>an <answer>A</answer></think><turn_sum>b</turn_sum>"), replied()), False),
        ((replied("<think>a</think><answer>B</answer> or C"),), False),
        ((replied("<think>a<answer>B</answer>"),), False),  # a thought that isn't closed
        ((replied("<think>a<think>b</think></think><answer>B</answer>"),), False),
        ((replied("<think>a</think>" + CALL + "<answer>B</answer>"),), False),  # a call in the last turn
        ((replied("<answer>B</answer><think>a</think>"),), False),
    ],
)
def test_format(turns: tuple[Turn, ...], ok: bool) -> None:
    assert format_ok(ended(*turns)) is ok


def test_rollouts_of_a_group_begin_with_different_views(qa: VideoQA) -> None:
    views = [run(FrameMind(), qa, MemorySource(60.0), REPLY, rollout_index=i).frames for i in range(8)]
    assert [len(frames) for frames in views] == [64, 59, 55, 50, 46, 41, 37, 32]
    assert [{(frame.width, frame.height) for frame in frames} for frames in views] == [
        {(side, side)} for side in (224, 252, 280, 308, 364, 392, 420, 448)
    ]


def test_frame_at_shows_the_closest_frame_in_large(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(FrameMind(), qa, source, look(at(42.04)), REPLY)
    assert trajectory.turns[0].observation == (
        "<tool_response>\n",
        "FrameAt:\n",
        "<42.00s>",
        FrameRef(420, 42.0, 448, 448),
        "\n",
        "</tool_response>",
    )


def test_video_clip_shows_both_ends_and_more_of_a_longer_stretch(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(FrameMind(), qa, source, look(clip(40, 43.5)), look(clip(0, 60)), REPLY)
    # 2 * 3.5 = 7, at least 8: every half second
    assert times(trajectory, 0) == [40.0, 40.5, 41.0, 41.5, 42.0, 42.5, 43.0, 43.5]
    assert len(times(trajectory, 1)) == 20
    assert times(trajectory, 1)[0] == 0.0 and times(trajectory, 1)[-1] == 59.9


def test_a_clip_shows_no_frame_twice(qa: VideoQA, source: MemorySource) -> None:
    # 0.2 s at 10 frames a second hold three frames
    assert times(run(FrameMind(), qa, source, look(clip(5, 5.2)), REPLY), 0) == [5.0, 5.1, 5.2]


def test_a_clip_of_a_moment_is_no_clip(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(FrameMind(), qa, source, look(clip(0, 1e-300)), look(clip(5, 5.09)), REPLY)
    assert [turn.illegal_calls for turn in trajectory.turns] == [1, 1, 0]
    assert times(trajectory, 0) == times(trajectory, 1) == []


def test_a_summary_without_calls_continues(qa: VideoQA, source: MemorySource) -> None:
    assert SMALL.parse(REST) == Calls(())
    trajectory = run(SMALL, qa, source, REST, REPLY)
    assert trajectory.end is EndReason.ANSWER
    assert trajectory.turns[0].observation == ("<tool_response>\n", "No call was made.\n", "</tool_response>")
    assert (trajectory.tool_calls, trajectory.illegal_calls) == (0, 0)


def test_messages_without_images_keep_everything_but_frames_and_their_labels() -> None:
    picture = Frame(0, 0.0, np.zeros((28, 28, 3), np.uint8))
    opening = ("instructions", "<0.00s>", picture, "<9.00s>", picture, "\nquestion")
    assert SMALL.drop_images(opening) == ("instructions", "\nquestion")
    shown = ("<tool_response>\n", "VideoClip:\n", "<1.00s>", picture, "\n", "ERROR: no.\n", "</tool_response>")
    assert SMALL.drop_images(shown) == ("<tool_response>\n", "VideoClip:\n", "\n", "ERROR: no.\n", "</tool_response>")


def test_images_count_by_turn_unless_all_stay(qa: VideoQA, source: MemorySource) -> None:
    # 8 at first, then 6 and 6
    texts = (look(clip(0, 9)), look(clip(10, 19)), REPLY)
    assert run(replace(SMALL, max_images=19), qa, source, *texts).end is EndReason.ANSWER
    assert run(replace(SMALL, max_images=19, context="all"), qa, source, *texts).end is EndReason.IMAGE_BUDGET
    assert run(replace(SMALL, max_images=20, context="all"), qa, source, *texts).end is EndReason.ANSWER


def test_reward_of_played_episodes(qa: VideoQA, source: MemorySource) -> None:
    both = run(SMALL, qa, source, look(at(42), clip(41, 43)), REPLY)
    assert asyncio.run(SMALL.score(both, qa, Graders())).reward == pytest.approx(2.7)  # 1 + 0 + 1.2 + 0.5
    by_sums = replace(SMALL, weights=FrameMindWeights(turn_bonus="turn_sums"))
    assert asyncio.run(by_sums.score(both, qa, Graders())).reward == pytest.approx(2.2)


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("3", "3", 1.0),
        ("3", " 3\n", 1.0),
        ("3", "3.0", 0.0),  # a perfect match (paper, E.3)
        ("3", "three", 0.0),
        ("-2.5", "-2.5", 1.0),
        ("-2.5", "2.5", 0.0),
    ],
)
def test_a_number_must_be_said_exactly_and_needs_no_judge(qa: VideoQA, gold: str, answer: str, right: float) -> None:
    asked = replace(qa, options=(), answer=gold, answer_type="open_ended")
    trajectory = run(FrameMind(), asked, MemorySource(), f"<think>seen</think><answer>{answer}</answer>")
    assert FrameMind().needs(asked) == {}
    assert asyncio.run(FrameMind().grade(trajectory, asked, Graders())) == right
    silent = run(FrameMind(), asked, MemorySource(), "<think>seen</think>")
    assert asyncio.run(FrameMind().grade(silent, asked, Graders())) == 0.0


@pytest.mark.parametrize(("system", "gold"), [(FrameMind(number_match="judge"), "3"), (FrameMind(), "3 cars")])
def test_other_answers_need_a_judge(qa: VideoQA, system: FrameMind, gold: str) -> None:
    asked = replace(qa, options=(), answer=gold, answer_type="open_ended")
    assert set(system.needs(asked)) == {"judge"}
    trajectory = run(system, asked, MemorySource(), "<think>seen</think><answer>3</answer>")
    with pytest.raises(EndpointError):
        asyncio.run(system.grade(trajectory, asked, Graders()))
