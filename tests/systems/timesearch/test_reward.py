"""Worked cases of TimeSearch-R's reward: format + acc / 2 + completeness / 2."""

import asyncio
from dataclasses import replace

import pytest

from agentic_video.graders.judge import Judge, JudgeConfig
from agentic_video.systems.timesearch import TimeSearch, TimeSearchWeights
from agentic_video.systems.timesearch.reward import accuracy, format_ok, mixes, timesearch_score, verified_answer
from agentic_video.systems.timesearch.system import VERIFIED
from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn
from tests.systems.timesearch.texts import LOOK, REPLY, score

CHOICE = VideoQA("c", "v", "Which?", "B", options=("red", "green", "blue"))
OPEN = VideoQA("o", "v", "What?", "a red car", answer_type="open_ended")
ORDER = VideoQA("s", "v", "In which order?", "(b)(a)(c)", answer_type="open_ended", extra={"type": "sequence"})
WHEN = VideoQA("w", "v", "When?", "12 - 22", answer_type="interval", windows=((12.0, 22.0),))


def looked(text: str = LOOK) -> Turn:
    return Turn(text, Calls((ToolCall("seek_video_frames", {}),)), 9, legal_calls=1)


def reply(text: str = REPLY, answer: str = "B") -> Turn:
    return Turn(text, Answer(answer), 9)


def episode(*turns: Turn, end: EndReason = EndReason.ANSWER, verified: str | None = None) -> Trajectory:
    notes = {} if verified is None else {VERIFIED: verified}
    return Trajectory("q", "timesearch", (), turns, end, notes=notes)


@pytest.mark.parametrize(
    ("trajectory", "acc", "verified", "expected"),
    [
        (episode(looked(), reply()), 1.0, 1.0, 2.0),
        (episode(looked(), reply()), 1.0, 0.0, 1.5),
        # a wrong answer earns no completeness, whatever was found
        (episode(looked(), reply()), 0.0, 1.0, 1.0),
        # grades that aren't whole: more than a half counts
        (episode(looked(), reply()), 0.6, 0.6, 1.0 + 0.3 + 0.5),
        (episode(looked(), reply()), 0.5, 1.0, 1.0 + 0.25),
        (episode(looked(), reply()), 1.0, 0.5, 1.0 + 0.5),
        # a broken form takes its own term only
        (episode(looked(), reply("<answer>B</answer>")), 1.0, 1.0, 1.0),
        (episode(looked(), end=EndReason.TURN_LIMIT), 0.0, 0.0, 0.0),
    ],
)
def test_worked_cases(trajectory: Trajectory, acc: float, verified: float, expected: float) -> None:
    result = timesearch_score(trajectory, acc, verified, TimeSearchWeights())
    assert result.reward == pytest.approx(expected) == sum(result.terms.values())
    assert result.acc == acc


@pytest.mark.parametrize(
    "turns",
    [
        [reply()],
        [looked(), looked(), reply()],
        [looked(" <think>a</think>\n<tool_call>{}</tool_call> "), reply()],
        # an unreadable call is one in form
        [Turn("<think>a</think><tool_call>?</tool_call>", Illegal("no JSON"), 9, illegal_calls=1), reply()],
        [reply("<think></think><answer></answer>", "")],
    ],
)
def test_good_form(turns: list[Turn]) -> None:
    assert format_ok(episode(*turns))


@pytest.mark.parametrize(
    "turns",
    [
        [reply("<answer>B</answer>")],
        [reply("<think>a</think>B <answer>B</answer>")],
        [reply("so <think>a</think><answer>B</answer>")],
        [reply("<think>a</think><think>b</think><answer>B</answer>")],
        [reply("<answer>B</answer><think>a</think>")],
        [reply("<think>a<answer>B</answer></think>")],
        [reply("<think>a</think><answer>B")],
        [reply("<think>a</think><tool_call>{}<answer>B</answer>")],
        [looked("<tool_call>{}</tool_call>"), reply()],
        [looked("<think>a</think><tool_call>{}</tool_call><tool_call>{}</tool_call>"), reply()],
        [looked("<think>a <answer></think><tool_call>{}</tool_call>"), reply()],
        [looked("<think>a</think><answer>B</answer>"), reply()],
    ],
)
def test_broken_form(turns: list[Turn]) -> None:
    assert not format_ok(episode(*turns))


def test_without_an_answer_there_is_no_form() -> None:
    assert not format_ok(episode(looked(), end=EndReason.TURN_LIMIT))
    assert not format_ok(episode(end=EndReason.ENGINE_ERROR))


@pytest.mark.parametrize(
    ("turn", "mixed"),
    [
        (reply(), False),
        (looked(), False),
        (reply("<think>a <tool_call></think><answer>B</answer>"), True),
        (looked("<think>a</think><answer><tool_call>{}</tool_call>"), True),
    ],
)
def test_a_turn_that_opens_both_counts_for_nothing(turn: Turn, mixed: bool) -> None:
    trajectory = episode(turn, reply(), verified="B")
    assert mixes(trajectory) is mixed
    # both terms are gone, and the form with them
    assert score(TimeSearch(), trajectory, CHOICE).acc == (0.0 if mixed else 1.0)
    assert score(TimeSearch(), trajectory, CHOICE).terms["completeness"] == (0.0 if mixed else 0.5)


class Strict(Judge):
    """Right is what is equal; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(JudgeConfig())
        self.asked: list[str] = []

    async def grade(self, question: str, reference: str, candidate: str, scale: str = "binary") -> float:
        self.asked.append(candidate)
        return float(candidate == reference)


@pytest.mark.parametrize(
    ("qa", "answer", "grade"),
    [
        (CHOICE, "B", 1.0),
        (CHOICE, "B. green", 1.0),
        (CHOICE, "green", 0.0),
        (CHOICE, "A. B.", 0.0),
        (CHOICE, None, 0.0),
        (OPEN, "a red car", 1.0),
        (OPEN, "a bus", 0.0),
        (ORDER, "(b)(a)(c)", 1.0),
        (ORDER, "first (b), then (a), last (c)", 1.0),
        (ORDER, "(a)(b)(c)", 0.0),
        (ORDER, "(b)(a)", 0.0),
        (ORDER, "", 0.0),
        (replace(ORDER, answer="b, a, c"), "none", 0.0),  # no order in the gold: released, anything like it is right
        (WHEN, '{"start_time": 12, "end_time": 22}', 1.0),
        (WHEN, '```json\n{"start_time": 17, "end_time": 27}\n```', 1 / 3),  # 5 of 15 seconds
        (WHEN, "soon", 0.0),
        (WHEN, '{"start_time": 22, "end_time": 12}', 0.0),
    ],
)
def test_accuracy_by_kind(qa: VideoQA, answer: str | None, grade: float) -> None:
    found = asyncio.run(accuracy(answer, qa, "leading_letter", 100, Strict()))
    assert found == pytest.approx(grade)


def test_a_long_answer_isn_t_shown_to_the_judge() -> None:
    judge = Strict()
    for length, asked in ((99, 1), (100, 1)):
        assert asyncio.run(accuracy("x" * length, OPEN, "leading_letter", 100, judge)) == 0.0
        assert len(judge.asked) == asked
    # an order may be as long as it likes
    assert asyncio.run(accuracy("(b)(a)(c)" + " " * 200, ORDER, "leading_letter", 100, judge)) == 1.0


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (" B. \n", "B."),
        ("<think>it is green</think><answer> B </answer>", "B"),
        ("<answer>A</answer> no, <answer>B</answer>", "B"),
        ("I don't know", "I don't know"),
        ("<answer>B", "<answer>B"),
        ("", ""),
    ],
)
def test_what_the_self_verification_answers(said: str, answer: str) -> None:
    assert verified_answer(said) == answer


@pytest.mark.parametrize(
    ("verified", "completeness"),
    [("B", 0.5), ("<answer>B</answer>", 0.5), ("A", 0.0), ("I don't know", 0.0), ("", 0.0), (None, 0.0)],
)
def test_completeness_is_what_the_same_policy_answers_from_the_frames(
    verified: str | None, completeness: float
) -> None:
    result = score(TimeSearch(), episode(looked(), reply(), verified=verified), CHOICE)
    assert (result.acc, result.terms["completeness"]) == (1.0, completeness)


def test_a_wrong_answer_s_verification_isn_t_judged() -> None:
    judge = Strict()
    trajectory = episode(looked(), reply(answer="a bus"), verified="a red car")
    assert score(TimeSearch(), trajectory, OPEN, judge).reward == 1.0
    assert judge.asked == ["a bus"]
    trajectory = episode(looked(), reply(answer="a red car"), verified="a red car")
    assert score(TimeSearch(), trajectory, OPEN, judge).reward == 2.0
