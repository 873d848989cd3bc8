# ruff: noqa: RUF001 - full-width writing
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.types.written import peeled, plain, undress, without_latex
from tests.growth import assert_linear


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ａ．１２：３０", "A.12:30"),
        ("「はい」", '"はい"'),
        ("【B】", "[B]"),
        ("甲、乙。", "甲,乙."),
        ("12—20～30", "12-20~30"),
        ("a → b", "a -> b"),
        ("½", "1/2"),
        ("1½", "1 1/2"),
        ("10²", "10^2"),
        ("1\u202f000", "1000"),
        ("1\u00a02", "1 2"),
        ("a\u200bb\ufeff", "ab"),
        ("", ""),
    ],
)
def test_plain_signs(text: str, expected: str) -> None:
    assert plain(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\boxed{\\textbf{B}}", "B"),
        ("{\\bf B}", " B"),
        ("\\frac{1}{2}", "1/2"),
        ("\\frac12 x", "1/2 x"),
        ("\\frac{\\frac{1}{2}}{3}", "(1/2)/3"),
        ("2\\frac{1}{2}", "2 1/2"),
        ("x^{2}", "x^2"),
        ("90^{\\circ}", "90°"),
        ("50\\%, \\$5", "50%, $5"),
        ("\\sqrt{2}", "\\sqrt2"),
        ("1\\,000", "1000"),
        ("12\\,s", "12 s"),
        ("\\{1\\}", "{1}"),
        ("\\boxed{B", "\\boxed{B"),  # not balanced
        ("B}", "B}"),
        ("\\", "\\"),
        ("\\frac{1}", "1"),
    ],
)
def test_latex(text: str, expected: str) -> None:
    assert without_latex(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**B**\n\n*green*", "B green"),
        ("# B", "B"),
        ("<b>B</b>", "B"),
        ("$x$ and $ B $", "x and B"),
        ("from $5 to $10", "from $5 to $10"),
        ("$5-$10", "$5-$10"),
        ("2 * 3", "2 × 3"),
        ("$\\boxed{$A$}$", "A"),
        ("10<sup>2</sup>", "10^2"),
        ("~~A~~", "~~A~~"),
        ("<s>A</s>", "<s>A</s>"),
    ],
)
def test_undressed(text: str, expected: str) -> None:
    assert undress(text) == expected


def test_wrappers_are_taken_off_yield_fairly() -> None:
    assert list(peeled("**$\\boxed{\\text{(x)}}$**.")) == [
        "**$\\boxed{\\text{(x)}}$**.",
        "$\\boxed{\\text{(x)}}$",
        "\\text{(x)}",
        "(x)",
        "x",
    ]
    assert list(peeled("$A$ or $B$")) == ["$A$ or $B$"]
    assert list(peeled("(A) (B)")) == ["(A) (B)"]


@given(
    st.text() | st.lists(st.sampled_from(["{", "}", "\\", "$", "\\frac", "*", "a", " ", "^", "<", ">"])).map("".join)
)
def test_whatever_is_written(text: str) -> None:
    for form in (plain(text), undress(text), without_latex(text), *peeled(text)):
        assert isinstance(form, str)
    assert "\n" not in undress(text)


HOSTILE = (*"{}$*(< \\~", "\\frac", "\\frac{", "$ ", "$a", "\\text{", "<b", "1\\,", "[[", "a*")


@pytest.mark.parametrize("unit", HOSTILE)
def test_time_is_by_length(unit: str) -> None:
    def read(length: int) -> None:
        text = unit * (length // len(unit))
        for form in (text, "\\boxed{" + text, text + "}"):
            undress(form)
            list(peeled(form))

    assert_linear(read, 4_000, 64_000, growth=16.0)
