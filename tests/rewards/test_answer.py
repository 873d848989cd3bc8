import pytest

from agentic_video.data.schema import VideoQA
from agentic_video.rewards.answer import boxed, match_choice, match_robust, match_videozoomer

OPTIONS = ("red", "green", "blue", "a grey cat")


@pytest.mark.parametrize(
    ("prediction", "gold", "right"),
    [
        ("B", "B", True),
        (" B\n", "B", True),
        ("B", "B.", True),  # the gold letter loses its trailing dot
        ("B.", "B", True),  # last ([A-Z])\.
        ("B. green", "B", True),
        ("A. red or B. green", "B", True),  # the last one counts, as released
        ("B. green or A. red", "B", False),
        ("\\boxed{B}", "B", True),
        ("the answer is \\boxed{ B }", "B", True),
        ("\\boxed{A} \\boxed{B}", "B", True),
        ("(B)", "B", False),
        ("b", "B", False),
        ("green", "B", False),
        ("", "B", False),
        ("AB", "B", False),
        ("\\boxed{B", "B", False),
    ],
)
def test_released_rule(prediction: str, gold: str, right: bool) -> None:
    assert match_videozoomer(prediction, gold) is right


@pytest.mark.parametrize(
    ("prediction", "right"),
    [
        ("B", True),
        ("b", True),
        ("B.", True),
        ("(B)", True),
        ("**B**", True),
        ("B: green", True),
        ("B) Green.", True),
        ("B. red", False),  # letter and text disagree
        ("green", True),
        ("GREEN!", True),
        ("\\boxed{B}", True),
        ("\\boxed{green}", True),
        ("A", False),
        ("red", False),
        ("A or B", False),
        ("A B C D", False),
        ("", False),
        ("E", False),
        ("the green one", False),
    ],
)
def test_robust_rule(prediction: str, right: bool) -> None:
    assert match_robust(prediction, "B", OPTIONS) is right


def test_boxed_content_has_balanced_braces() -> None:
    assert boxed("x \\boxed{a{b}c} y") == "a{b}c"
    assert boxed("\\boxed{a{b}") is None
    assert boxed("none") is None


def test_no_answer_is_wrong_and_a_long_one_is_cut() -> None:
    qa = VideoQA(id="1", video="v", question="q", answer="B", options=OPTIONS)
    assert not match_choice(None, qa, "robust")
    assert not match_choice("B" + " B" * 10**6, qa, "robust")
    assert not match_choice("{" * 10**6, qa, "videozoomer")


def test_two_options_of_the_same_text_name_neither() -> None:
    assert not match_robust("red", "A", ("red", "red"))
