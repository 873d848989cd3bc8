"""Completeness self-verification: a right choice earns when a verifier is right from the same frames."""

import asyncio

import pytest

from agentic_video.graders.base import Graders
from agentic_video.graders.endpoint import EndpointError
from agentic_video.graders.verifier import VerifierError
from agentic_video.systems.eva.system import Eva
from agentic_video.systems.eva.verification import last_retrieval, verify_choice
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, RecordedMessage, Trajectory
from tests.conftest import MemorySource
from tests.systems.eva.recorded import EARLY, LATE, FakeVerifier, episode, look, refused, reply, score


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


def test_the_verifier_sees_the_last_frames_as_the_agent_did(qa: VideoQA) -> None:
    verifier = FakeVerifier("(B)")
    assert score(episode(look(EARLY), look(LATE), refused(), reply()), qa, verifier) == 1.0
    ((prompt, frames),) = verifier.asked
    assert [(frame.index, frame.width, frame.height) for frame in frames] == [
        (410, 56, 28),
        (430, 28, 28),
        (420, 28, 28),
    ]
    assert "What colour flashes at 42 s?\n(A) red\n(B) green\n(C) blue\n(D) grey" in prompt


def test_overview_frames_are_no_retrieval(qa: VideoQA) -> None:
    trajectory = Trajectory("q", "eva", (RecordedMessage("user", EARLY),), (reply(),), EndReason.ANSWER)
    verifier = FakeVerifier("B")
    assert score(trajectory, qa, verifier) == 0.0
    assert not verifier.asked and last_retrieval(trajectory) == ()


@pytest.mark.parametrize("says", ["", "A, B, C or D", "I cannot tell", "A", "AB", "B" * 10**6, "{" * 10**5])
def test_a_verifier_that_names_no_single_option_verifies_nothing(qa: VideoQA, says: str) -> None:
    assert score(episode(look(), reply()), qa, FakeVerifier(says)) == pytest.approx(0.05)


def test_a_verifier_s_choice_is_matched_by_the_system_s_rule(qa: VideoQA) -> None:
    graders = Graders(verifier=FakeVerifier("It is (B)."), source=MemorySource())  # type: ignore[arg-type]
    earned = {
        rule: asyncio.run(Eva(answer_match=rule).score(episode(look(), reply("B")), qa, graders)).reward
        for rule in ("robust", "exact")
    }
    assert earned == {"robust": pytest.approx(1.0), "exact": pytest.approx(0.05)}


def test_a_verifier_that_fails_is_not_a_wrong_answer(qa: VideoQA) -> None:
    with pytest.raises(EndpointError):
        score(episode(look(), reply()), qa, FakeVerifier(VerifierError("away")))
    with pytest.raises(EndpointError, match="needs a verifier"):
        score(episode(look(), reply()), qa, None)


def test_frames_that_cannot_be_had_again_are_not_a_wrong_answer(qa: VideoQA) -> None:
    graders = Graders(verifier=FakeVerifier("B"), source=MemorySource(fail=True))  # type: ignore[arg-type]
    with pytest.raises(EndpointError, match="no frames for the verifier"):
        asyncio.run(verify_choice(episode(look(), reply()), qa, "?", graders, "robust"))
