# ruff: noqa: RUF001 - answers in full-width writing
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.graders.answer import (
    MAX_ANSWER_CHARS,
    MatchRule,
    boxed,
    match_choice,
    match_last_letter,
    match_leading_letter,
    match_marked_letter,
    match_one_letter,
    match_robust,
    match_strict,
    named_option,
)
from agentic_video.types.row import LETTERS, VideoQA
from tests.growth import assert_linear

BAR = " ¦ "
"""Stands between the texts of a list."""
CHINESE = ("红色", "蓝色", "绿色")
"""Red, blue, green."""
OPTIONS = ("red", "green", "blue", "a grey cat")
QA = VideoQA(id="1", video="v", question="q", answer="B", options=OPTIONS)


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
    assert match_last_letter(prediction, gold) is right


@pytest.mark.parametrize(
    ("prediction", "right"),
    [
        ("B", True),
        ("(B)", True),
        ("(B) green", True),
        ("B.", True),
        ("B. green. A. red", True),  # one reading: the first
        ("A. red. B. green", False),
        ("B green", False),
        ("B) green", False),
        ("b.", False),
        ("The answer is B.", False),
        ("", False),
    ],
)
def test_the_letter_that_an_answer_begins_with(prediction: str, right: bool) -> None:
    assert match_marked_letter(prediction, "B") is right


@pytest.mark.parametrize(
    ("prediction", "letter"),
    [
        ("B", "B"),
        (" B. ", "B"),
        ("B. green", "B"),
        ("A. red or B. green", "B"),
        ("B. green or A. red", "A"),
        ("\\boxed{B}", "B"),
        ("the answer is \\boxed{ B }.", "B"),
        ("\\boxed{A} \\boxed{B}", "B"),
        ("A. \\boxed{B}", "B"),  # the released rule takes it for both
        ("\\boxed{A} B.", "A"),
        ("\\boxed{B.}", "B"),
        ("\\boxed{} B.", "B"),
        ("\\boxed{B. green}", "B"),  # the released rule's last dotted letter
        ("\\boxed{green} A. or B.", "B"),
        ("\\boxed{A} in the U.S.", "A"),  # S is no option
        ("\\boxed{A} or \\boxed{X} B.", "B"),
        ("\\boxed{AB} C.", "C"),
        ("(B)", ""),
        ("green", ""),
        ("", ""),
    ],
)
def test_one_reading_of_the_released_rule(prediction: str, letter: str) -> None:
    assert [gold for gold in "ABCD" if match_one_letter(prediction, gold, OPTIONS)] == list(letter)


@pytest.mark.parametrize(
    ("prediction", "letter"),
    [
        ("B", "B"),
        (" B.\n", "B"),
        ("B. green", "B"),
        ("B green", "B"),
        ("B or A", "B"),  # as released: what follows isn't read, and one letter is all that ever counts
        ("B.A", "B"),
        ("b", ""),
        ("(B)", ""),
        ("B) green", ""),
        ("B, C", ""),
        ("Blue", ""),
        ("The answer is B", ""),
        ("\\boxed{B}", ""),
        ("", ""),
    ],
)
def test_the_letter_that_an_answer_starts_with(prediction: str, letter: str) -> None:
    assert [gold for gold in "ABCD" if match_leading_letter(prediction, gold)] == list(letter)


ROBUST_RULE_RIGHT = (
    'B ¦ b ¦  B\n ¦ B. ¦ B) ¦ (B) ¦ (b). ¦ [B] ¦ **B** ¦ `B` ¦ "B" ¦ $B$ ¦ \uff22 ¦ \\boxed{B} ¦ '
    "\\boxed{\\text{B}} ¦ $\\boxed{\\textbf{B}}$ ¦ Option B ¦ option (B) ¦ Answer: B ¦ The answer is B ¦ "
    "The answer is: **B**. ¦ The correct answer is option B. ¦ So, the final answer is \\boxed{B}. ¦ B: green ¦ "
    "B) Green. ¦ (B) green ¦ B.green ¦ B - green ¦ B green ¦ Option B: green ¦ B\n\ngreen ¦ B, green ¦ "
    "B \u2013 green ¦ The answer is $\\boxed{B}$ ¦ The final answer is: $\\boxed{\\text{B}}$. ¦ “B” ¦ It is B. ¦ "
    "It\u2019s green. ¦ green ¦ GREEN! ¦ the green ¦ \\boxed{green} ¦ The answer is green. ¦ the green one"
).split(BAR)
ROBUST_RULE_WRONG = (
    "A ¦ red ¦ The answer is A ¦ \\boxed{A} ¦ A. red ¦ B. red ¦ A. green ¦ (A) green ¦ A green ¦ green (A) ¦ "
    "Option A: green ¦ A, green ¦ B, red ¦ The answer is $\\boxed{A}$ ¦ A or B ¦ B or A ¦ A B C D ¦ A. B. C. D. ¦ "
    "(A)(B) ¦ A, B ¦ B, A ¦ A, B, C ¦ $A$ $B$ ¦ A/B ¦ AB ¦ B\nA ¦ B. or A. ¦ \\boxed{A} \\boxed{B} ¦ "
    "\\boxed{B} \\boxed{A} ¦ A \\boxed{B} ¦ red, green ¦ red green ¦ green, no: red ¦ "
    "The answer is A. The answer is B. ¦ any option ¦ all of them ¦ not B ¦ B is wrong ¦ not green ¦ "
    "B. I am not sure ¦ It is not B but A ¦  ¦     ¦ () ¦ . ¦ E ¦ The answer is ¦ greenish ¦ \\boxed{B ¦ "
    "\\boxed{} ¦ \u0412 ¦ correct"
).split(BAR)


@pytest.mark.parametrize("prediction", [*ROBUST_RULE_RIGHT, *ROBUST_RULE_WRONG])
def test_robust_rule(prediction: str) -> None:
    assert match_robust(prediction, "B", OPTIONS) is (prediction in ROBUST_RULE_RIGHT)


@pytest.mark.parametrize(
    ("prediction", "options", "named"),
    [
        # numbers by value
        ("3", ("2", "three", "4"), "B"),
        ("three", ("2", "3", "4"), "B"),
        ("3.0", ("2", "3", "30"), "B"),
        ("3.", ("2", "3", "30"), "B"),
        ("1,000", ("100", "1000", "10000"), "B"),
        ("1000000", ("1,000", "1,000,000"), "B"),
        ("007", ("70", "7"), "B"),
        ("-5", ("5", "-5"), "B"),
        ("5", ("5", "-5"), "A"),
        ("3.5", ("35", "3.5", "3", "5"), "B"),
        ("50", ("50%", "50"), "B"),
        ("3,4", ("34", "3, 4"), "B"),
        ("0:42", ("0:43", "00:42"), "B"),
        ("3 apples", ("3", "three apples"), "B"),
        ("2", ("2.5", "3"), None),
        ("9" * 4000, ("9", "99"), None),
        ("1", ("1", "one"), "A"),  # the most alike wins
        ("1.0", ("1", "one"), None),
        # yes and no
        ("yes", ("Yes", "No"), "A"),
        ("No.", ("Yes", "No"), "B"),
        ("The answer is no", ("Yes", "No"), "B"),
        ("yes and no", ("Yes", "No"), None),
        ("B. Yes", ("Yes", "No"), None),
        # articles
        ("grey cat", ("a dog", "A grey cat"), "B"),
        ("The grey cat.", ("a dog", "a grey cat"), "B"),
        ("A grey cat", ("a dog", "a grey cat"), "B"),
        ("a man in hat", ("a man", "the man in the hat"), "B"),
        ("the dog", ("a dog", "the dog"), "B"),
        ("dog", ("a dog", "the dog"), None),
        ("A dog", ("cat", "dog"), None),  # option A, or a dog?
        ("a dog", ("cat", "dog"), "B"),
        # options that look like letters or like prompts
        ("A", ("C", "A"), "A"),
        ("A. C", ("C", "A"), "A"),
        ("B. C", ("C", "A"), None),
        ("A. Lincoln", ("A. Lincoln", "B. Obama"), "A"),
        ("A. Lincoln", ("B. Obama", "A. Lincoln"), None),
        ("Option 2", ("Option 1", "Option 2"), "B"),
        ("C++", ("C", "C++"), "B"),
        ("The red one", ("red", "blue"), "A"),
        ("the red one", ("red", "the red one"), "B"),
        ("The red one or the blue one", ("red", "blue"), None),
        ("C", ("C", "C++", "C#"), "C"),  # a bare letter is a letter
        ("don\u2019t", ("do", "don't"), "B"),
        ("T shirt", ("trousers", "T-shirt"), "B"),
        # prices
        ("from $5 to $10", ("$5", "from $5 to $10", "$10"), "B"),
        ("\u22125", ("5", "-5"), "B"),
        # Chinese: red, blue, green; punctuation, leads, brackets
        ("B\u3002", CHINESE, "B"),
        ("蓝色\u3002", CHINESE, "B"),
        ("\u300a蓝色\u300b", CHINESE, "B"),
        ("B. 蓝色\u3002", CHINESE, "B"),
        ("B\u3001蓝色", CHINESE, "B"),
        ("\uff08B\uff09蓝色", CHINESE, "B"),
        ("答案\uff1aB", CHINESE, "B"),
        ("答案是B\u3002", CHINESE, "B"),
        ("所以\uff0c正确答案为蓝色", CHINESE, "B"),
        ("选B", CHINESE, "B"),
        ("A\u3001蓝色", CHINESE, None),
        ("A\u3001B", CHINESE, None),
        ("不是B", CHINESE, None),
        ("选项一", ("选项一", "选项二"), "A"),
        # options of the same text
        ("red", ("red", "red"), None),
        ("A", ("red", "red"), "A"),
        ("...", ("...", "x"), "A"),
    ],
)
def test_the_option_that_an_answer_names(prediction: str, options: tuple[str, ...], named: str | None) -> None:
    right = [letter for letter in LETTERS[: len(options)] if match_robust(prediction, letter, options)]
    assert right == ([named] if named else [])


STRICT_RULE_RIGHT = "B ¦  B  ¦ B. ¦ (B) ¦ [B]".split(BAR)
STRICT_RULE_WRONG = (
    "b ¦ B) ¦ (B ¦ (B). ¦ (B] ¦ B.. ¦ B: ¦ B. green ¦ green ¦ **B** ¦ \\boxed{B} ¦ The answer is B ¦ A ¦ AB ¦ A\nB ¦ "
).split(BAR)


@pytest.mark.parametrize("prediction", [*STRICT_RULE_RIGHT, *STRICT_RULE_WRONG])
def test_strict_rule(prediction: str) -> None:
    assert match_strict(prediction, "B") is (prediction in STRICT_RULE_RIGHT)


@pytest.mark.parametrize(
    ("prediction", "right"), [("B", True), ("B.", False), (" B", False), ("b", False), ("green", False), ("", False)]
)
def test_exact_rule(prediction: str, right: bool) -> None:
    assert match_choice(prediction, QA, "exact") is right


def test_boxed_content_has_balanced_braces() -> None:
    assert boxed("x \\boxed{a{b}c} y") == "a{b}c"
    assert boxed("\\boxed{a{b}") is None
    assert boxed("none") is None


@pytest.mark.parametrize("rule", get_args(MatchRule))
def test_every_rule_knows_the_bare_letter_and_no_answer(rule: MatchRule) -> None:
    assert match_choice("B", QA, rule)
    assert not match_choice("A", QA, rule)
    assert not match_choice("", QA, rule)
    assert not match_choice(None, QA, rule)


def test_the_released_rule_reads_the_whole_answer_the_others_its_beginning() -> None:
    for rule in ("exact", "strict", "robust"):
        assert not match_choice("A " * 3000 + "B", QA, rule) and not match_choice("A. " + " " * 5000 + "B.", QA, rule)
    assert match_choice("B." + "x" * 10**6, QA, "last_letter")
    assert match_choice("B." + "x" * 10**6, QA, "one_letter")
    assert not match_choice("x" + " " * 10**6 + "B", QA, "last_letter")  # the last 4,000 characters would be right


PIECES = [
    *"ABCDab().: \n,*$",
    "{",
    "}",
    "\\boxed{",
    "\\text{",
    "red",
    "green",
    "blue",
    "a grey cat",
    "The answer is ",
    "Option ",
    "or",
    "not",
    "3",
    "1,000",
    "-",
    "\x00",
    "\ud800",
    "\ufdfa",
]
hostile = st.text(max_size=40) | st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(hostile, st.lists(hostile.filter(bool), min_size=2, max_size=6).map(tuple))
def test_never_raises_and_at_most_one_letter_is_right(prediction: str, options: tuple[str, ...]) -> None:
    for rule in get_args(MatchRule):
        right = [
            letter
            for letter in LETTERS[: len(options)]
            if match_choice(prediction, VideoQA("1", "v", "q", letter, options=options), rule)
        ]
        # VideoZoomer's released rule lets "\\boxed{A} B." win for both letters
        assert len(right) <= (2 if rule == "last_letter" else 1)


LETTER_DRESSES = (
    '{} ¦  {}\n ¦ {}. ¦ {}) ¦ ({}) ¦ [{}] ¦ {{{}}} ¦ |{}| ¦ **{}** ¦ *{}* ¦ __{}__ ¦ _{}_ ¦ `{}` ¦ ~{}~ ¦ "{}" ¦ '
    "'{}' ¦ “{}” ¦ 【{}】 ¦ （{}） ¦ 《{}》 ¦ 〈{}〉 ¦ 「{}」 ¦ 『{}』 ¦ "
    "[[{}]] ¦ <b>{}</b> ¦ # {} ¦ > {} ¦ - {} ¦ • {} ¦ {}! ¦ "
    "{}。 ¦ **{}.** ¦ \u200b{}\ufeff ¦ \\boxed{{{}}} ¦ \\boxed{{ {} }} ¦ \\boxed{{({})}} ¦ \\boxed{{{}.}} ¦ "
    "\\boxed{{\\text{{{}}}}} ¦ \\boxed{{\\mathrm{{{}}}}} ¦ \\boxed{{\\mathbf{{{}}}}} ¦ "
    "\\boxed{{\\textbf{{\\text{{{}}}}}}} ¦ \\boxed{{\\textsf{{{}}}}} ¦ \\boxed{{\\bf {}}} ¦ "
    "\\boxed{{\\rm{{{}}}}} ¦ \\boxed{{\\operatorname{{{}}}}} ¦ \\boxed{{${}$}} ¦ \\boxed{{\\({}\\)}} ¦ "
    "$\\boxed{{{}}}$ ¦ $$\\boxed{{{}}}$$ ¦ \\(\\boxed{{{}}}\\) ¦ \\[\\boxed{{{}}}\\] ¦ "
    "\\[ \\boxed{{\\textbf{{({})}}}} \\] ¦ \\fbox{{{}}} ¦ ${}$ ¦ $$ {} $$ ¦ \\({}\\) ¦ \\[{}\\] ¦ $\\text{{{}}}$ ¦ "
    "\\boxed{{\\,{}\\;}} ¦ $\\mathbf{{({})}}$ ¦ Option {} ¦ OPTION {} ¦ option ({}) ¦ Choice: ({}) ¦ Answer: {} ¦ "
    "Answer - {} ¦ Answer = {} ¦ Answer\n{} ¦ **Answer:** {} ¦ ### Answer\n\n{} ¦ The answer is {} ¦ "
    "The correct answer is **{}**. ¦ The final answer is $\\boxed{{{}}}$. ¦ "
    "So, the answer is \\(\\boxed{{{}}}\\). ¦ 答案：{} ¦ 答案是{}。 ¦ "
    "选{} ¦ 我选{} ¦ {}选项 ¦ 选项{} ¦ 答案：【{}】 ¦ 答えは{}です。 ¦ 정답은 {}입니다."
).split(BAR)
BOTH_DRESSES = (
    "{letter}. {text} ¦ ({letter}) {text} ¦ {letter}) {text} ¦ {letter}: {text} ¦ {letter}, {text} ¦ "
    "{letter}\n{text} ¦ {letter} - {text} ¦ {letter}、{text} ¦ {letter}．{text} ¦ （{letter}）{text} ¦ "
    "{letter}：{text} ¦ [{letter}] {text} ¦ Option {letter}: {text} ¦ The answer is {letter}. {text} ¦ "
    "答案：{letter}. {text}"
).split(BAR)
WRAPPERS = (
    '{} ¦ \\boxed{{{}}} ¦ $\\boxed{{{}}}$ ¦ \\boxed{{\\text{{{}}}}} ¦ **{}** ¦ "{}" ¦ “{}” ¦ 「{}」 ¦ '
    "\\[\\boxed{{{}}}\\]"
).split(BAR)
HARD_TEXTS = (
    "$\\frac{1}{2}$ ¦ $\\frac{1}{3}$ ¦ $x$ ¦ $y^2$ ¦ 2 * 3 ¦ 2 + 3 ¦ `print(x)` ¦ **bold** ¦ plain ¦ M*A*S*H ¦ "
    "\\text{CO}_2 ¦ $\\text{H}_2\\text{O}$ ¦ 100 % ¦ 3-5 ¦ 5-7 ¦ ½ cup ¦ 10°C ¦ café ¦ a red car ¦ A man ¦ "
    "the woman ¦ I, II ¦ II, III ¦ C++ ¦ C# ¦ f(x) = 2x ¦ {1, 2} ¦ [0, 1] ¦ (0, 1] ¦ don't ¦ A/B testing ¦ "
    "vitamin C ¦ T-shirt ¦ 10² ¦ 102 ¦ 1,000 ¦ 红色 ¦ 12:30 ¦ <b>x</b> ¦ x < y ¦ a_b ¦ ~5 ¦ #1 ¦ > 3 ¦ - 7 ¦ -5 ¦ "
    "5 ¦ \\sqrt{2} ¦ π ¦ e.g. this ¦ No. ¦ None of the above ¦ Option 2 ¦ 「はい」 ¦ 是，对 ¦ \\boxed{7} ¦ 8. May ¦ "
    "D. Trump ¦ {a|b} ¦ |z| ¦ \\(z^2\\)"
).split(BAR)
PRICES = ("$5", "$10", "from $5 to $10", "50\\%")

letters_of = st.permutations("ABCD")


@given(letters_of, st.sampled_from(LETTER_DRESSES), st.sampled_from(("{}", "full width", "lower case")))
def test_a_letter_in_any_dress_names_its_option_and_no_other(letters: list[str], dress: str, written: str) -> None:
    letter = letters[0]
    said = {"full width": chr(ord(letter) + 0xFEE0), "lower case": letter.lower()}.get(written, letter)
    assert named_option(dress.format(said), OPTIONS) == letter


@given(
    st.lists(st.sampled_from(HARD_TEXTS), min_size=2, max_size=6, unique=True),
    st.sampled_from((*BOTH_DRESSES, "{text}", " {text}\n")),
    st.sampled_from(WRAPPERS),
)
def test_an_options_own_text_names_it_and_no_other(options: list[str], dress: str, wrapper: str) -> None:
    for letter, text in zip(LETTERS, options, strict=False):
        said = wrapper.format(dress.format(letter=letter, text=text))
        assert named_option(said, tuple(options)) == letter
        other = LETTERS[1] if letter == "A" else "A"
        if "{letter}" in dress:
            assert named_option(wrapper.format(dress.format(letter=other, text=text)), tuple(options)) is None


@pytest.mark.parametrize("dress", [*BOTH_DRESSES, "{text}"])
@pytest.mark.parametrize("options", [PRICES, ("$A$", "$B$"), ("A. red", "B. blue"), ("(A) red", "(B) A. Berg")])
def test_own_texts_that_look_like_maths_or_come_with_letters(dress: str, options: tuple[str, ...]) -> None:
    for letter, text in zip(LETTERS, options, strict=False):
        assert named_option(dress.format(letter=letter, text=text), options) == letter


@given(
    st.lists(st.text(min_size=1, max_size=12), min_size=2, max_size=5, unique_by=lambda text: " ".join(text.split()))
)
def test_an_options_text_never_names_another(options: list[str]) -> None:
    for letter, text in zip(LETTERS, options, strict=False):
        if len(text.strip()) > 1:  # a bare letter is a letter
            assert named_option(text, tuple(options)) in (letter, None)
            assert named_option(f"{letter}. {text}", tuple(options)) in (letter, None)


@pytest.mark.parametrize(
    ("prediction", "options", "named"),
    [
        # fractions, thin spaces, escaped signs
        ("\\frac{1}{2}", ("1/2", "1/3"), "A"),
        ("\\boxed{\\dfrac{1}{3}}", ("1/2", "1/3"), "B"),
        ("$\\frac12$", ("½", "⅓"), "A"),
        ("0.5", ("\\frac{1}{2}", "\\frac{1}{3}"), "A"),
        ("2\\frac{1}{2}", ("21/2", "2 1/2"), "B"),
        ("1½", ("11/2", "1 1/2"), "B"),
        ("10²", ("102", "10^2"), "B"),
        ("50\\%", ("50%", "50"), "A"),
        ("1\\,000", ("1000", "1 0"), "A"),
        ("1{,}000", ("1000", "10"), "A"),
        ("1\u202f000", ("1000", "10"), "A"),
        ("\\text{CO}_2", ("CO2", "H2O"), "A"),
        ("2 \\times 3", ("2 × 3", "2 + 3"), "A"),
        ("90^\\circ", ("90°", "45°"), "A"),
        ("3 to 5", ("3-5", "5-7"), "A"),
        ("½ cup", ("1/2 cup", "1/4 cup"), "A"),
        # the letter behind the text
        ("red (A)", ("red", "blue"), "A"),
        ("red (option A)", ("red", "blue"), "A"),
        ("red, A", ("red", "blue"), "A"),
        ("red (B)", ("red", "blue"), None),
        ("A/B", ("red", "blue"), None),
        ("A-blue", ("red", "blue"), None),
        # what is struck out isn't said
        ("~~A~~", ("red", "blue"), None),
        ("<s>A</s> B", ("red", "blue"), None),
        ("~~A~~ B", ("red", "blue"), None),
        ("\\cancel{A}", ("red", "blue"), None),
        ("\\boxed{A} \\text{or} \\boxed{B}", ("red", "blue"), None),
        ("\\boxed{A}\\boxed{B}", ("red", "blue"), None),
        ("\\frac{A}{B}", ("red", "blue"), None),
        ("\\boxed{A, B}", ("red", "blue"), None),
        ("\\boxed{\\text{A or B}}", ("red", "blue"), None),
        ("\\boxed{A", ("red", "blue"), None),
        # options that come with their letters, and such as only look so
        ("red", ("A. red", "B. blue"), "A"),
        ("A. A. red", ("A. red", "B. blue"), "A"),
        ("B. A. red", ("A. red", "B. blue"), None),
        ("$\\mathrm{B}$", ("$\\mathrm{B}$", "x"), None),
        ("A. $\\mathrm{A}$", ("$\\mathrm{A}$", "x"), "A"),
    ],
)
def test_dresses_by_hand(prediction: str, options: tuple[str, ...], named: str | None) -> None:
    assert named_option(prediction, options) == named


DRESSES = (*LETTER_DRESSES, "{}: {text}", "{text}", "$\\boxed{{{}. {text}}}$", "**{}. {text}**")
GLUE = [" ", "\n", ", ", " or ", " and ", "/", ". ", "; ", " not ", ""]


@given(
    st.permutations(range(4)),
    st.sampled_from(DRESSES),
    st.sampled_from(DRESSES),
    st.sampled_from(GLUE),
    st.sampled_from(["", "Answer: ", "The answer is "]),
    st.sampled_from(["", ".", " "]),
)
def test_naming_two_options_is_never_right(
    order: list[int], first: str, second: str, glue: str, before: str, after: str
) -> None:
    one, two = (dress.format("ABCD"[i], text=OPTIONS[i]) for dress, i in zip((first, second), order, strict=False))
    prediction = before + one + glue + two + after
    for rule in ("exact", "strict", "robust"):
        assert not any(match_choice(prediction, VideoQA("1", "v", "q", gold, options=OPTIONS), rule) for gold in "ABCD")


@pytest.mark.parametrize("rule", get_args(MatchRule))
@pytest.mark.parametrize(
    "unit",
    ["{", "(", "\\boxed{", "A. B. ", "1,000,", "9", " ", "the ", "*", "so the final answer is ", "\u0301", "\ufdfa"],
)
def test_time_is_by_length(rule: MatchRule, unit: str) -> None:
    # As much as every rule reads; one of them reads all of an answer, however long.
    def match(length: int) -> None:
        text = unit * (length // len(unit))
        for prediction in (text, "\\boxed{" + text, text + "B", "B" + text):
            match_choice(prediction, QA, rule)

    assert_linear(match, MAX_ANSWER_CHARS // 8, MAX_ANSWER_CHARS - 10, growth=8.0)
    if rule in ("one_letter", "last_letter"):
        assert_linear(match, 20_000, 160_000, growth=8.0)
