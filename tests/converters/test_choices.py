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
        (["B. cat", "D. dog"], ("B. cat", "D. dog")),
        (["A. cat", "dog"], ("A. cat", "dog")),
        (["A. cat\nand dog", "B. cow"], ("cat\nand dog", "cow")),
        (["A.", "B."], ("A.", "B.")),
    ],
)
def test_undress(options: list[str], bare: tuple[str, ...]) -> None:
    assert choices.undress(options) == bare


def test_undress_refuses_another_order() -> None:
    with pytest.raises(choices.ChoiceError, match="in the order B, A; put them in the order of their letters"):
        choices.undress(["B. cat", "A. dog"])


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
        # out of order: read by the letters
        ("Who?\nC. z\nA. x\nB. y\nD. w", "Who?", ("x", "y", "z", "w")),
        ("Who?\nA. x\nB. y\nD. w\nC. z", "Who?", ("x", "y", "z", "w")),
        ("Who?\nD. w\nC. z\nB. y\nA. x", "Who?", ("x", "y", "z", "w")),
        ("Who?\n\nC. z\nmore\n\nA. x\n\nB. y\n\nGive a letter.", "Who?", ("x", "y", "z more")),
        ("Who? C. z A. x B. y", "Who?", ("x", "y", "z")),
        ("Who? B. y A. x", "Who?", ("x", "y")),
        # an instruction's first word, and blank lines, within the options
        ("Who?\nA. x\nB. y\nonly he\nC. z", "Who?", ("x", "y only he", "z")),
        ("Who?\nA. x\n\nB. y\n\nC. z\n\nAnswer with a letter.", "Who?", ("x", "y", "z")),
        # statements, then options about them
        ("A. 1 is\nB. 2 is\nWhich?\nA. one\nB. two", "A. 1 is\nB. 2 is\nWhich?", ("one", "two")),
        ("C. Smith\nA. he\nB. she", "C. Smith", ("he", "she")),  # all three would leave no question
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Who?\nA. x\nB. y\nD. w", r"can't be told apart by their letters \(A, B, D\)"),
        ("Who?\nA. x\nB. y\nB. z", r"\(A, B, B\)"),
        ("Who? A. x B. y D. w", r"\(A, B, D\)"),
        ("Who?\nA. x\nB.\nC. z", "holds no text for option B"),
        ("Who?\nA. x\nB.\nGive a letter.", "holds no text for option B"),
        ("Hear!\nC. Berg asks:\nA. he\nB. she", "may begin its options with C or with A"),
        ("Hear!\nC. Berg speaks.\nWho is it?\nA. he\nB. she", "may begin its options with C or with A"),
    ],
)
def test_split_question_refuses_what_is_not_clear(text: str, message: str) -> None:
    with pytest.raises(choices.ChoiceError, match=message):
        choices.split_question(text)


WORDS = st.text(st.sampled_from("abc xyz12"), min_size=1, max_size=12).map(str.strip).filter(bool)


@given(WORDS, st.lists(WORDS, min_size=2, max_size=26), st.sampled_from(["{}. {}", "({}) {}", "{}: {}", "({}): {}"]))
def test_round_trip(question: str, options: list[str], dress: str) -> None:
    options = [" ".join(option.split()) for option in options]
    dressed = [dress.format(letter, option) for letter, option in zip(LETTERS, options, strict=False)]
    assert choices.undress(dressed) == tuple(options)
    assert choices.split_question("\n".join([f"{question}?", *dressed])) == (f"{question}?", tuple(options))


@given(WORDS, st.permutations("ABCDEF"), st.sampled_from(["{}. {}", "({}) {}"]))
def test_order_does_not_matter(question: str, order: list[str], dress: str) -> None:
    lines = [dress.format(letter, letter.lower() * 3) for letter in order]
    assert choices.split_question("\n".join([question, *lines])) == (
        question,
        ("aaa", "bbb", "ccc", "ddd", "eee", "fff"),
    )


@given(st.text(max_size=300))
def test_no_text_raises_anything_else(text: str) -> None:
    with contextlib.suppress(choices.ChoiceError):
        question, options = choices.split_question(text)
        assert isinstance(question, str)
        assert all(options)
        assert len(options) != 1
    choices.is_letter(text)
    for read in (choices.from_letter, choices.from_text, choices.from_index):
        with contextlib.suppress(choices.ChoiceError):
            assert read(text, ("one", "two")) in ("A", "B")
