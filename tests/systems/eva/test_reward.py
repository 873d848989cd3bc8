"""Worked cases of EVA's reward: w_acc r_acc + w_fmt r_fmt, with r_fmt = 0.05 for a call without credit."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from agentic_video.graders.base import Graders
from agentic_video.graders.judge import EndpointError
from agentic_video.graders.verifier import VerifierError
from agentic_video.systems.eva.reward import (
    EvaWeights,
    eva_score,
    format_ok,
    last_retrieval,
    rouge_mean,
    verifier_answer,
    verify_choice,
)
from agentic_video.systems.eva.system import Eva
from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory, Turn
from tests.conftest import MemorySource

CALL = '<tool_call>{"tool": "frame_select", "arguments": {"start_time": 1, "end_time": 3, "nframes": 2}}</tool_call>'
CALLS = Calls((ToolCall("frame_select", {"start_time": 1, "end_time": 3, "nframes": 2}),))
EARLY = (FrameRef(10, 1.0, 28, 28), FrameRef(30, 3.0, 28, 28))
LATE = (FrameRef(410, 41.0, 56, 28), FrameRef(430, 43.0, 28, 28), FrameRef(420, 42.0, 28, 28))


def look(refs: Sequence[FrameRef] = EARLY, text: str = "<think>plan</think>" + CALL) -> Turn:
    return Turn(text, CALLS, 9, observation=("<tool_response>", *refs, "</tool_response>"), legal_calls=1)


def refused(text: str = "<think>plan</think>" + CALL) -> Turn:
    return Turn(text, CALLS, 9, observation=("<tool_response>Error</tool_response>",), illegal_calls=1)


def reply(answer: str = "B", text: str = "") -> Turn:
    return Turn(text or f"<think>seen</think><answer>{answer}</answer>", Answer(answer), 9)


def episode(*turns: Turn, end: EndReason = EndReason.ANSWER) -> Trajectory:
    return Trajectory("q", "eva", (), turns, end)


class FakeVerifier:
    def __init__(self, says: str | Exception):
        self.says = says
        self.asked: list[tuple[str, list[Frame]]] = []

    async def ask(self, prompt: str, frames: Sequence[Frame]) -> str:
        self.asked.append((prompt, list(frames)))
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


def score(trajectory: Trajectory, qa: VideoQA, verifier: FakeVerifier | None, system: Eva | None = None) -> float:
    graders = Graders(verifier=verifier, source=MemorySource())  # type: ignore[arg-type]
    return asyncio.run((system or Eva()).score(trajectory, qa, graders)).reward


# the gold answer is B
@pytest.mark.parametrize(
    ("answer", "says", "reward", "asked"),
    [
        ("B", "B", 1.0, True),  # both right
        ("B", "A", 0.05, True),  # the frames don't show it: no credit, so only the format reward
        ("A", "B", 0.05, False),  # wrong after a call
        ("A", "A", 0.05, False),  # a verifier that is wrong in the same way doesn't help
    ],
)
def test_truth_table_of_self_verification(qa: VideoQA, answer: str, says: str, reward: float, asked: bool) -> None:
    verifier = FakeVerifier(says)
    assert score(episode(look(), reply(answer)), qa, verifier) == pytest.approx(reward)
    assert bool(verifier.asked) == asked


@pytest.mark.parametrize("says", ["B", "A"])
@pytest.mark.parametrize("answer", ["B", "A"])
def test_an_answer_without_a_retrieval_earns_nothing(qa: VideoQA, answer: str, says: str) -> None:
    verifier = FakeVerifier(says)
    assert score(episode(reply(answer)), qa, verifier) == 0.0
    assert not verifier.asked


@pytest.mark.parametrize(
    ("answer", "retrieved", "reward"), [("B", True, 1.0), ("A", True, 0.05), ("B", False, 1.0), ("A", False, 0.0)]
)
def test_without_self_verification_the_agents_own_answer_counts(
    qa: VideoQA, answer: str, retrieved: bool, reward: float
) -> None:
    trajectory = episode(*([look()] if retrieved else []), reply(answer))
    assert score(trajectory, qa, None, Eva(csv=False)) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("trajectory", "acc", "credited", "reward"),
    [
        (episode(look(), reply()), 1.0, 1.0, 1.0),
        (episode(look(), look(), look(), look(), look(), reply()), 1.0, 1.0, 1.0),  # five calls earn no more than one
        (episode(look(), reply()), 1.0, 0.0, 0.05),  # right, not verified
        (episode(look(), reply("A")), 0.0, 0.0, 0.05),
        (episode(look(), look(), reply("A")), 0.0, 0.0, 0.05),
        (episode(reply("A")), 0.0, 0.0, 0.0),  # wrong without a call
        (episode(refused(), reply("A")), 0.0, 0.0, 0.0),  # a refused call is no call
        (episode(refused(), look(), reply("A")), 0.0, 0.0, 0.05),
        (episode(look(), look(), end=EndReason.TURN_LIMIT), 0.0, 0.0, 0.0),  # no answer
        (episode(look(), end=EndReason.TOKEN_BUDGET), 0.0, 0.0, 0.0),
        (episode(look(), Turn("", Illegal("x"), 0), end=EndReason.ILLEGAL), 0.0, 0.0, 0.0),
        (episode(end=EndReason.ENGINE_ERROR), 0.0, 0.0, 0.0),
        (episode(look(), reply("red")), 0.4, 0.4, 0.4),  # open ended: a fraction, and no format reward beside it
        (episode(look(), reply("red")), 0.0, 0.0, 0.05),
        (episode(reply("red")), 0.4, 0.4, 0.4),
        (episode(look(), reply("A", "<answer>A</answer>")), 0.0, 0.0, 0.05),  # thoughts aren't paid for
    ],
)
def test_worked_cases(trajectory: Trajectory, acc: float, credited: float, reward: float) -> None:
    result = eva_score(trajectory, acc, credited, EvaWeights())
    assert result.reward == pytest.approx(reward)
    assert sum(result.terms.values()) == result.reward
    assert (set(result.terms), result.acc) == ({"acc", "format"}, acc)


def test_weights_are_factors() -> None:
    weights = EvaWeights(acc=0.8, format=2.0, tool_call=0.1)
    assert eva_score(episode(look(), reply()), 1.0, 1.0, weights).reward == pytest.approx(0.8)
    assert eva_score(episode(look(), reply("A")), 0.0, 0.0, weights).reward == pytest.approx(0.2)


def test_the_verifier_sees_the_last_frames_as_the_agent_did(qa: VideoQA) -> None:
    verifier = FakeVerifier("(B)")
    assert score(episode(look(EARLY), look(LATE), refused(), reply()), qa, verifier) == 1.0
    ((prompt, frames),) = verifier.asked
    assert [(frame.index, frame.width, frame.height) for frame in frames] == [
        (410, 56, 28), (430, 28, 28), (420, 28, 28),
    ]  # fmt: skip
    assert "What colour flashes at 42 s?\n(A) red\n(B) green\n(C) blue\n(D) grey" in prompt


def test_overview_frames_are_no_retrieval(qa: VideoQA) -> None:
    from agentic_video.types.trajectory import RecordedMessage

    trajectory = Trajectory("q", "eva", (RecordedMessage("user", EARLY),), (reply(),), EndReason.ANSWER)
    verifier = FakeVerifier("B")
    assert score(trajectory, qa, verifier) == 0.0
    assert not verifier.asked and last_retrieval(trajectory) == ()


@pytest.mark.parametrize(
    ("says", "answer"),
    [
        ("B", "B"),
        ("<think>A?</think><answer>B</answer>", "B"),
        ("<answer>A</answer> no <answer>B</answer>", "B"),
        ("</answer><answer>", "</answer><answer>"),
        ("", ""),
    ],
)
def test_what_a_verifier_answers(says: str, answer: str) -> None:
    assert verifier_answer(says) == answer


@pytest.mark.parametrize("says", ["", "A, B, C or D", "I cannot tell", "A", "AB", "B" * 10**6, "{" * 10**5])
def test_a_verifier_that_names_no_single_option_verifies_nothing(qa: VideoQA, says: str) -> None:
    assert score(episode(look(), reply()), qa, FakeVerifier(says)) == pytest.approx(0.05)


def test_a_verifier_that_fails_is_not_a_wrong_answer(qa: VideoQA) -> None:
    with pytest.raises(EndpointError):
        score(episode(look(), reply()), qa, FakeVerifier(VerifierError("away")))
    with pytest.raises(EndpointError, match="needs a verifier"):
        score(episode(look(), reply()), qa, None)


def test_frames_that_cannot_be_had_again_are_not_a_wrong_answer(qa: VideoQA) -> None:
    graders = Graders(verifier=FakeVerifier("B"), source=MemorySource(fail=True))  # type: ignore[arg-type]
    with pytest.raises(EndpointError, match="no frames for the verifier"):
        asyncio.run(verify_choice(episode(look(), reply()), qa, "?", graders))


@pytest.mark.parametrize(
    ("answer", "reference", "mean"),
    [
        ("a red car", "a red car", 1.0),
        ("A RED car!", "a red car", 1.0),  # case and punctuation don't count
        ("a red cars", "a red car", 1.0),  # nor do endings
        # unigrams 3/4 and 3/3: 6/7; bigrams 2/3 and 2/2: 4/5; longest common run as the unigrams
        ("a red car drives", "a red car", (6 / 7 + 4 / 5 + 6 / 7) / 3),
        # all words, no pair of neighbours in order; the longest common subsequence is one word
        ("car red a", "a red car", (1.0 + 0.0 + 1 / 3) / 3),
        ("red", "red", 2 / 3),  # one word has no bigram
        ("blue", "a red car", 0.0),
        ("", "a red car", 0.0),
        ("\u7ea2", "a red car", 0.0),
    ],
)
def test_rouge_by_hand(answer: str, reference: str, mean: float) -> None:
    assert rouge_mean(answer, reference) == pytest.approx(mean)


def test_rouge_of_a_long_answer_takes_no_time() -> None:
    rouge_mean("warm", "up")
    started = time.monotonic()
    assert rouge_mean("a b " * 10**6, "b a " * 10**6) > 0
    assert time.monotonic() - started < 5.0


def test_open_ended_answers_need_no_grader() -> None:
    qa = VideoQA(id="o", video="v", question="What is it?", answer="a red car", answer_type="open_ended")
    assert score(episode(look(), reply("a red car")), qa, None) == pytest.approx(1.0)
    assert score(episode(reply("a red car")), qa, None) == pytest.approx(1.0)
    assert score(episode(look(), reply("blue")), qa, None) == pytest.approx(0.05)
    assert score(episode(look(), end=EndReason.TURN_LIMIT), qa, None) == 0.0


@pytest.mark.parametrize(
    ("trajectory", "ok"),
    [
        (episode(look(), reply()), True),
        (episode(reply()), True),
        (episode(look(), reply("B", "<answer>B</answer>")), False),  # no think
        (episode(look(), reply("B", "<think>a</think><answer>B</answer><answer>A</answer>")), False),
        (episode(look(), reply("B", "<think>a</think><answer>B</answer> indeed")), False),
        (episode(look(), reply("B", f"<think>a</think>{CALL}<answer>B</answer>")), False),
        (episode(look(EARLY, CALL), reply()), False),
        (episode(look(EARLY, "<think><answer>B</answer></think>" + CALL), reply()), False),
        (episode(refused(), reply()), False),
        (episode(look(EARLY, f"<think>a</think>{CALL}\n{CALL}"), reply()), True),  # several calls
        (episode(look(), end=EndReason.TURN_LIMIT), False),
    ],
)
def test_format_is_logged(trajectory: Trajectory, ok: bool) -> None:
    assert format_ok(trajectory) is ok
