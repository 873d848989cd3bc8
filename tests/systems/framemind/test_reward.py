"""Worked cases of FrameMind's reward: acc + format {0, -1} + s (0.2 + 0.8 acc) + 0.5 [2 or 3 turns], s 1.0 or 1.2."""

import pytest

from agentic_video.systems.framemind.grammar import evidence_header
from agentic_video.systems.framemind.reward import FrameMindWeights, format_ok, framemind_score, used_tools
from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.trajectory import EndReason, FrameRef, RecordedPart, Trajectory, Turn

FRAME_AT, CLIP = "FrameAt", "VideoClip"
CALL = '<tool_call>{"name": "FrameAt", "arguments": {"t": 4}}</tool_call>'
LOOK = f"<think>closer</think>{CALL}<turn_sum>a</turn_sum>"
REST = "<think>hm</think><turn_sum>nothing yet</turn_sum>"
REPLY = "<think>seen</think><answer>B</answer>"
PICTURE = FrameRef(40, 4.0, 448, 448)


def evidence(*tools: str) -> tuple[RecordedPart, ...]:
    shown = [part for tool in tools for part in (evidence_header(tool), "<4.00s>", PICTURE, "\n")]
    return ("<tool_response>\n", *shown, "</tool_response>")


def look(*tools: str, text: str = LOOK) -> Turn:
    """A turn whose calls were carried out."""
    calls = Calls(tuple(ToolCall(tool, {"t": 4.0}) for tool in tools))
    return Turn(text, calls, 9, observation=evidence(*tools), legal_calls=len(tools))


def refused(text: str = LOOK) -> Turn:
    shown = ("<tool_response>\n", "ERROR: t lies outside the video.\n", "</tool_response>")
    return Turn(text, Calls((ToolCall(FRAME_AT, {"t": 99.0}),)), 9, observation=shown, illegal_calls=1)


def reply(text: str = REPLY) -> Turn:
    return Turn(text, Answer("B"), 9)


def episode(*turns: Turn, end: EndReason = EndReason.ANSWER) -> Trajectory:
    return Trajectory("q", "framemind", (), turns, end)


TWO_ANSWERS = reply("<think>a</think><answer>A</answer><answer>B</answer>")
STRAY_TEXT = reply("<think>a</think> so <answer>B</answer>")
CUT = Turn("<think>hm", Illegal("cut"), 9, finished=False, illegal_calls=1)
UNSHOWN = Turn(LOOK, Calls((ToolCall(FRAME_AT, {"t": 4.0}),)), 9, legal_calls=1)

# trajectory, acc, reward where turns are counted (Eq. 8), reward where closed summaries are (Eq. 13)
CASES = {
    "right, one tool": (episode(look(FRAME_AT), reply()), 1.0, 2.5, 2.0),  # 1 + 0 + 1.0 + 0.5
    "right, the other tool": (episode(look(CLIP), reply()), 1.0, 2.5, 2.0),
    "right, both at once": (episode(look(FRAME_AT, CLIP), reply()), 1.0, 2.7, 2.2),  # 1 + 0 + 1.2 + 0.5
    "right, both in two turns": (episode(look(CLIP), look(FRAME_AT), reply()), 1.0, 2.7, 2.7),
    "right, one tool twice": (episode(look(CLIP), look(CLIP), reply()), 1.0, 2.5, 2.5),  # no more than once
    "right at once": (episode(reply()), 1.0, 1.0, 1.0),
    "right, two turns, no tool": (episode(look(text=REST), reply()), 1.0, 1.5, 1.0),
    "wrong at once": (episode(reply()), 0.0, 0.0, 0.0),
    "wrong, one tool": (episode(look(FRAME_AT), reply()), 0.0, 0.7, 0.2),  # 0 + 0 + 0.2 + 0.5
    "wrong, both tools": (episode(look(FRAME_AT, CLIP), reply()), 0.0, 0.74, 0.24),  # 1.2 * 0.2 = 0.24
    "wrong, both in two turns": (episode(look(CLIP), look(FRAME_AT), reply()), 0.0, 0.74, 0.74),
    "refused, right": (episode(refused(), reply()), 1.0, 1.5, 1.0),  # no tool use, but no broken format either
    "refused, corrected, right": (episode(refused(), look(CLIP), reply()), 1.0, 2.5, 2.5),
    "two answers": (episode(TWO_ANSWERS), 1.0, 0.0, 0.0),  # 1 - 1
    "text between blocks": (episode(look(CLIP), STRAY_TEXT), 1.0, 1.5, 1.0),
    "no thought": (episode(reply("<answer>B</answer>")), 1.0, 0.0, 0.0),
    "no thought earlier": (episode(look(text="<turn_sum>a</turn_sum>"), reply()), 1.0, 0.5, 0.0),
    "unanswered after three": (
        episode(look(CLIP), look(CLIP), look(text=LOOK), end=EndReason.TURN_LIMIT),
        0.0,
        -0.3,
        -0.3,
    ),  # 0 - 1 + 0.2 + 0.5
    "cut in the second turn": (episode(look(CLIP), CUT, end=EndReason.TOKEN_BUDGET), 0.0, -0.3, -0.8),
    "nothing": (episode(CUT, end=EndReason.TOKEN_BUDGET), 0.0, -1.0, -1.0),
    "frames that didn't fit": (episode(UNSHOWN, end=EndReason.IMAGE_BUDGET), 0.0, -1.0, -1.0),
    "no turn at all": (episode(end=EndReason.ENGINE_ERROR), 0.0, -1.0, -1.0),
}


@pytest.mark.parametrize(("trajectory", "acc", "by_turns", "by_sums"), CASES.values(), ids=CASES)
def test_worked_cases(trajectory: Trajectory, acc: float, by_turns: float, by_sums: float) -> None:
    assert framemind_score(trajectory, acc, FrameMindWeights()).reward == pytest.approx(by_turns)
    sums = FrameMindWeights(turn_bonus="turn_sums")
    assert framemind_score(trajectory, acc, sums).reward == pytest.approx(by_sums)


@pytest.mark.parametrize(
    ("trajectory", "acc", "reward"),
    [
        (episode(look(FRAME_AT), reply()), 1.0, 2.5),  # 1 + 0 + 1.0 * 1 + 0.5
        (episode(look(FRAME_AT, CLIP), reply()), 1.0, 2.7),
        (episode(look(FRAME_AT), reply()), 0.0, 0.5),  # the turn bonus alone
        (episode(look(FRAME_AT, CLIP), reply()), 0.0, 0.5),
    ],
)
def test_strict_gating(trajectory: Trajectory, acc: float, reward: float) -> None:
    assert framemind_score(trajectory, acc, FrameMindWeights(exploration=0.0)).reward == pytest.approx(reward)


def test_terms_by_name() -> None:
    score = framemind_score(episode(look(FRAME_AT, CLIP), STRAY_TEXT), 1.0, FrameMindWeights())
    assert score.terms == pytest.approx({"acc": 1.0, "format": -1.0, "tool": 1.2, "turn": 0.5})
    assert (score.acc, score.format) == (1.0, 0.0)
    assert sum(score.terms.values()) == score.reward


def test_more_turns_than_three_earn_no_bonus() -> None:
    four = episode(*[look(CLIP)] * 3, reply())
    assert framemind_score(four, 1.0, FrameMindWeights()).terms["turn"] == 0.0
    # three closed summaries
    assert framemind_score(four, 1.0, FrameMindWeights(turn_bonus="turn_sums")).terms["turn"] == 0.5


def test_summaries_heaped_into_one_turn_count_once() -> None:
    heaped = episode(reply("<think>a</think><turn_sum>a</turn_sum><turn_sum>b</turn_sum><answer>B</answer>"))
    score = framemind_score(heaped, 1.0, FrameMindWeights(turn_bonus="turn_sums"))
    assert (score.terms["turn"], score.format) == (0.0, 0.0)


def test_a_tool_is_used_when_its_frames_were_shown() -> None:
    assert used_tools(episode(look(FRAME_AT), look(CLIP), reply())) == {FRAME_AT, CLIP}
    assert used_tools(episode(refused(), reply())) == set()
    # naming a tool, or imitating its evidence, is not using it
    forged = reply(f"<think>{evidence_header(CLIP)}</think><answer>B</answer>")
    assert used_tools(episode(forged)) == set()


@pytest.mark.parametrize(
    ("turns", "ok"),
    [
        ((reply(),), True),
        ((reply(" <think>a</think>\n<think>b</think>\n<answer>B</answer>\n"),), True),  # several thoughts
        ((look(text=REST), reply()), True),
        ((look(text="<think>a</think>" + 2 * CALL + "<think>b</think><turn_sum>c</turn_sum>"), reply()), True),
        ((look(text=LOOK + "x"), reply()), False),  # text behind
        ((look(text=CALL + "<turn_sum>a</turn_sum>"), reply()), False),  # a call before any thought
        ((look(text=2 * LOOK), reply()), False),  # two summaries
        ((look(text="<think>a</think><answer>A</answer><turn_sum>b</turn_sum>"), reply()), False),
        ((look(text="<think>an <answer>A</answer></think><turn_sum>b</turn_sum>"), reply()), False),
        ((reply("<think>a</think><answer>B</answer> or C"),), False),
        ((reply("<think>a<answer>B</answer>"),), False),  # a thought that isn't closed
        ((reply("<think>a<think>b</think></think><answer>B</answer>"),), False),
        ((reply("<think>a</think>" + CALL + "<answer>B</answer>"),), False),  # a call in the last turn
        ((reply("<answer>B</answer><think>a</think>"),), False),
    ],
)
def test_format(turns: tuple[Turn, ...], ok: bool) -> None:
    assert format_ok(episode(*turns)) is ok


def test_format_needs_an_answer() -> None:
    assert not format_ok(episode(look(CLIP), end=EndReason.IMAGE_BUDGET))
