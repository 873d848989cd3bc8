"""Options and answers in every published dress."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.converters import choices
from agentic_video.types.row import LETTERS


@pytest.mark.parametrize(
    ("options", "bare"),
    [
        (["A. cat", "B. dog"], ("cat", "dog")),
        (["(A) cat", "(B) dog"], ("cat", "dog")),
        (["(A): cat", "(B): dog"], ("cat", "dog")),
        (["A: cat", "B: dog"], ("cat", "dog")),
        (["A.cat", "B.dog"], ("cat", "dog")),
        ([" cat ", "dog"], ("cat", "dog")),
        (["A. Lincoln", "G. Washington"], ("A. Lincoln", "G. Washington")),  # names, not letters
        (["B. cat", "A. dog"], ("B. cat", "A. dog")),  # letters of another order are left for the eye
        (["A.", "B."], ("A.", "B.")),
    ],
)
def test_undress(options: list[str], bare: tuple[str, ...]) -> None:
    assert choices.undress(options) == bare


@pytest.mark.parametrize(
    ("text", "question", "options"),
    [
        ("Who?\nA. he\nB. she", "Who?", ("he", "she")),
        ("<video>\nWho?\nOptions:\n(A) he\n(B) she\n", "Who?", ("he", "she")),
        ("Who?\n\nA) he\nB) she\n\nAnswer with a letter.", "Who?", ("he", "she")),
        ("Who?\nA. he\nB. she\nPlease give the letter.", "Who?", ("he", "she")),
        ("Who?\nA. he and\nhis dog\nB. she\nalone", "Who?", ("he and his dog", "she alone")),
        ("A. Smith asks:\nwho?\nA. he\nB. she", "A. Smith asks:\nwho?", ("he", "she")),
        ("Who? A. he B. she C. both", "Who?", ("he", "she", "both")),
        ("Who? (A) he (B) she", "Who?", ("he", "she")),
        ("Does vitamin A. help?", "Does vitamin A. help?", ()),
        ("Who?\nA. he", "Who?\nA. he", ()),
        ("Who?\nA. \nB. she", "Who?\nA. \nB. she", ()),
        ("A. he\nB. she", "", ("he", "she")),
        ("", "", ()),
    ],
)
def test_split_question(text: str, question: str, options: tuple[str, ...]) -> None:
    assert choices.split_question(text) == (question, options)


@pytest.mark.parametrize(
    ("value", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(B)", "B"),
        ("B.", "B"),
        ("[B]", "B"),
        ("<answer>B</answer>", "B"),
        ("<answer>A</answer> no: <ANSWER> B </ANSWER>", "B"),
        ("B. a dog", "B"),
        ("(B) A Dog.", "B"),
        ("B: a  dog", "B"),
    ],
)
def test_from_letter(value: str, letter: str) -> None:
    assert choices.from_letter(value, ("a cat", "a dog")) == letter


@pytest.mark.parametrize("value", ["", "C", "AB", "a dog", "B. a cat", "1", 1, True, None, ["B"], "<answer></answer>"])
def test_from_letter_refuses(value: object) -> None:
    with pytest.raises(choices.ChoiceError):
        choices.from_letter(value, ("a cat", "a dog"))


def test_letter_text_and_index_are_never_confused() -> None:
    options = ("B", "A", "0", "1")
    assert choices.from_letter("A", options) == "A"
    assert choices.from_text("A", options) == "B"
    assert choices.from_text("1", options) == "D"
    assert choices.from_text(1, options) == "D"
    assert choices.from_index("1", options) == "B"


@pytest.mark.parametrize("value", ["x", "", None, True, ["a cat"]])
def test_from_text_refuses(value: object) -> None:
    with pytest.raises(choices.ChoiceError, match="no option"):
        choices.from_text(value, ("a cat", "a dog"))


def test_from_text_prefers_the_same_text_and_refuses_two() -> None:
    assert choices.from_text("Cat", ("cat", "Cat")) == "B"
    assert choices.from_text(" a CAT. ", ("a dog", "A  cat")) == "B"
    with pytest.raises(choices.ChoiceError, match="2 options"):
        choices.from_text("cat", ("cat", "cat"))


@pytest.mark.parametrize(("value", "letter"), [(0, "A"), ("1", "B"), (1.0, "B"), ("1.0", "B")])
def test_from_index(value: object, letter: str) -> None:
    assert choices.from_index(value, ("a", "b")) == letter


@pytest.mark.parametrize("value", [-1, 2, "2", "A", "", None, True, 0.5, float("nan"), float("inf"), 10**400, [0]])
def test_from_index_refuses(value: object) -> None:
    with pytest.raises(choices.ChoiceError, match="from 0 to 1"):
        choices.from_index(value, ("a", "b"))


@pytest.mark.parametrize(("text", "yes"), [("B", True), ("(B)", True), ("<answer>B.</answer>", True), ("Ben", False)])
def test_is_letter(text: str, yes: bool) -> None:
    assert choices.is_letter(text) is yes


WORDS = st.text(st.sampled_from("abc xyz12"), min_size=1, max_size=12).map(str.strip).filter(bool)


@given(WORDS, st.lists(WORDS, min_size=2, max_size=26), st.sampled_from(["{}. {}", "({}) {}", "{}: {}", "({}): {}"]))
def test_round_trip(question: str, options: list[str], dress: str) -> None:
    options = [" ".join(option.split()) for option in options]
    dressed = [dress.format(letter, option) for letter, option in zip(LETTERS, options, strict=False)]
    assert choices.undress(dressed) == tuple(options)
    assert choices.split_question("\n".join([f"{question}?", *dressed])) == (f"{question}?", tuple(options))


@given(st.text(max_size=300))
def test_no_text_raises(text: str) -> None:
    question, options = choices.split_question(text)
    assert isinstance(question, str)
    assert all(options)
    assert len(options) != 1
    choices.is_letter(text)
    for read in (choices.from_letter, choices.from_text, choices.from_index):
        with contextlib.suppress(choices.ChoiceError):
            assert read(text, ("one", "two")) in ("A", "B")
