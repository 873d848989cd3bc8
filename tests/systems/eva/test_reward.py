"""Worked cases of EVA's reward: w_acc r_acc + w_fmt r_fmt, with r_fmt = 0.05 for a call without credit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from agentic_video.systems.eva.reward import MAX_ROUGE_CHARS, EvaWeights, eva_score, format_ok, rouge_mean, rouge_words
from agentic_video.systems.eva.system import Eva
from agentic_video.types.action import Illegal
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn
from tests.growth import assert_linear
from tests.systems.eva.recorded import CALL, EARLY, episode, look, refused, reply, score


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
        (episode(look(), reply("red")), 0.4, 0.4, 0.4),  # open ended: a fraction, and no format reward
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
        (
            "\u7eff\u8272\u7684\u676f\u5b50\u3002",
            "\u7eff\u8272\u7684\u676f\u5b50",
            1.0,
        ),  # Chinese: each character is a word
        # unigrams 2 of 2 and of 3: 4/5; no pair of neighbours; the longest common subsequence as the unigrams
        ("\u7eff\u676f", "\u7eff\u8272\u676f", (4 / 5 + 0.0 + 4 / 5) / 3),
        (
            "\u0437\u0435\u043b\u0451\u043d\u0430\u044f \u0447\u0430\u0448\u043a\u0430",
            "\u0417\u0435\u043b\u0451\u043d\u0430\u044f \u0447\u0430\u0448\u043a\u0430!",
            1.0,
        ),
        ("un caf\u00e9 noir", "un cafe\u0301 noir", 1.0),  # written in two ways
    ],
)
def test_rouge_by_hand(answer: str, reference: str, mean: float) -> None:
    assert rouge_mean(answer, reference) == pytest.approx(mean)


@given(st.text(st.characters(max_codepoint=127), max_size=200), st.text(st.characters(max_codepoint=127), max_size=200))
def test_rouge_of_ascii_is_the_package_s_own(answer: str, reference: str) -> None:
    own = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True).score(reference, answer)
    assert rouge_mean(answer, reference) == sum(kind.fmeasure for kind in own.values()) / 3


def test_words_of_every_script() -> None:
    assert rouge_words("The cat's 2.5 x_y") == ["the", "cat", "s", "2", "5", "x", "y"]
    assert rouge_words("\u7ea2\u8272 car2\u7ea2") == ["\u7ea2", "\u8272", "car2", "\u7ea2"]
    assert rouge_words("\u0e01\u0e34\u0e19") == ["\u0e01\u0e34", "\u0e19"], "a Thai vowel sign stays with its letter"
    assert rouge_words("\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e") == [
        "\u0939\u093f\u0928\u094d\u0926\u0940",
        "\u092d\u093e\u0937\u093e",
    ]
    assert rouge_words("\ufdfa" * 1_000)[:1] and len(rouge_words("\u7ea2" * 10**4)) == 500
    assert rouge_words(" .,\x00") == []


def test_no_more_than_a_thousand_characters_are_compared() -> None:
    # ROUGE-L's time is by the product of the lengths: of what is behind, only cutting it off costs anything
    answer, reference = ("a b " * 250)[:MAX_ROUGE_CHARS], ("b a " * 250)[:MAX_ROUGE_CHARS]
    mean = rouge_mean(answer, reference)
    assert 0 < mean < 1
    assert rouge_mean(answer + "a b " * 10**6, reference + "b a " * 10**6) == mean
    assert_linear(lambda times: rouge_mean("a b " * times, "b a " * times), 250, 4_000, growth=16.0)


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
