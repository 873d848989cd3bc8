"""Is an answer right? Rules for multiple choice; open-ended answers go to the judge.

One rule is our own and shared (``robust``), one is the narrowest (``strict``), the others are what released code does.
A benchmark's official extraction becomes one more function of (prediction, question) in ``_RULES``.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Literal

from agentic_video.types.row import LETTERS, VideoQA

MatchRule = Literal["exact", "strict", "robust", "one_letter", "last_letter", "leading_letter", "marked_letter"]
"""``exact``: equal to the gold letter, as strings (FrameThinker's released code). ``strict``: the gold letter, perhaps
with one trailing dot or in brackets, and nothing else. ``robust``: see :func:`match_robust`. ``one_letter``: see
:func:`match_one_letter`. ``last_letter``: see :func:`match_last_letter`. ``leading_letter``: see
:func:`match_leading_letter`. ``marked_letter``: see :func:`match_marked_letter`."""

MAX_ANSWER_CHARS = 4_000
"""A longer answer is wrong, except under ``one_letter`` and ``last_letter``, which read all of it: a letter at the end
of a long text earns nothing."""

_LEADING = re.compile(r"([A-Z])(?:[.\s]|\Z)")
_STRICT = re.compile(r"([A-Z])\.?|\(([A-Z])\)|\[([A-Z])\]")

# A command's braces are taken off from the inside out; nothing nests deeper than \boxed{\textbf{\text{B}}}.
_LATEX = re.compile(r"\\(?:boxed|text|textbf|textit|mathrm|mathbf)\{([^{}]*)\}")
_LATEX_DEPTH = 3
# Not of prices, which have as many dollars
_MATHS = re.compile(r"\$ *(\\[a-z]+\{[^$]*\}|[A-Za-z]) *\$")
# Signs that NFKC leaves alone, as what they are in ASCII
_SIGNS = str.maketrans(
    "\u3002\u3001\u2018\u2019\u201c\u201d\u300a\u300b\u300c\u300d\u2013\u2014\u2212", '.,\'\'""""""---'
)
_LEAD = re.compile(
    r"(?:(?:so|thus|hence|therefore),? )?(?:it(?: is|'s) |(?:the |my )?(?:final |correct |right |best )?"
    r"(?:answer|option|choice)\b(?: is| would be)?:? ?)(?:the )?(?:option |choice |letter )?"
    # in Chinese: (so,) (the right) answer (is), option, I choose
    r"|(?:(?:所以|因此),? ?)?(?:正确|最终)?(?:答案|选项|选择|选)(?:是|为)?:? ?(?:选项|选)?",
    re.IGNORECASE,
)
_LETTER = re.compile(r"[(\[]?([A-Za-z])(?:([)\].:]+ ?|, ?| - )|$| )(.*)", re.DOTALL)
_EDGES = " .,:;!?\"'"
_SMALL_NUMBERS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
)
_NUMBER_WORDS = {word: str(number) for number, word in enumerate(_SMALL_NUMBERS)}
# A number with its sign; a word; any other sign that can carry meaning (50 %, C++).
_TOKEN = re.compile(r"(?<!\w)-?(?:\d{1,3}(?:,\d{3}(?!\d))+|\d+)(?:\.\d+)?|\w+|[^\w\s.,:;!?\"'()\[\]{}-]")
_ARTICLES = re.compile(r"(?<!\S)(?:a|[Tt]he|[Aa]n)(?= \w)")


def boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` with balanced braces, or None."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for position in range(start + len("\\boxed{") - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + len("\\boxed{") : position]
    return None


def match_last_letter(prediction: str, gold: str) -> bool:
    r"""VideoZoomer's released rule (code): the answer equals the gold letter (gold without a trailing "."), or its
    boxed content does, or its last ``([A-Z])\.`` does."""
    prediction, gold = prediction.strip(), gold.strip().rstrip(".")
    dotted = re.findall(r"([A-Z])\.", prediction)
    return prediction == gold or (boxed(prediction) or "").strip() == gold or (bool(dotted) and dotted[-1] == gold)


def match_one_letter(prediction: str, gold: str) -> bool:
    r"""VideoZoomer's released rule with one reading of an answer: its boxed content if it has any, else its last
    ``([A-Z])\.``, else all of it. The released rule takes ``A. \boxed{B}`` for A and for B."""
    inside, dotted = boxed(prediction), re.findall(r"([A-Z])\.", prediction)
    named = inside if inside is not None else dotted[-1] if dotted else prediction
    return named.strip().rstrip(".") == gold.strip().rstrip(".")


def match_leading_letter(prediction: str, gold: str) -> bool:
    """TimeSearch-R's released rule (code): the answer starts with the gold letter as a capital, which a dot or white
    space follows, if anything does."""
    found = _LEADING.match(prediction.strip())
    return found is not None and found[1] == gold


def match_marked_letter(prediction: str, gold: str) -> bool:
    """Video-o3's released rule: the answer is the gold letter, or begins with it in brackets or with a dot behind it
    (``(B) text``, ``B. text``)."""
    return prediction == gold or prediction.startswith((f"({gold})", f"{gold}."))


def match_strict(prediction: str, gold: str) -> bool:
    """The gold letter as a capital: ``B``, ``B.``, ``(B)`` or ``[B]``, and nothing else but white space around it."""
    found = _STRICT.fullmatch(prediction.strip())
    return found is not None and gold in found.groups()


def match_robust(prediction: str, gold: str, options: tuple[str, ...]) -> bool:
    r"""The shared rule: the answer names one option, the right one, and says nothing else.

    It names an option by its letter in any common dress (``b``, ``B.``, ``(B)``, ``**B**``, ``\boxed{B}``,
    ``Option B``, ``The answer is B``; in Chinese, too), by its text, or by both (``B: text``). Texts are
    compared without case, punctuation and articles; numbers by value (``1,000`` is ``1000``, ``three`` is ``3``).

    An answer that names no option or several, or a letter with another option's text, is wrong; so is one that goes on
    after naming it, because what follows may take it back.
    """
    return named_option(prediction, options) == gold


def named_option(prediction: str, options: tuple[str, ...]) -> str | None:
    """The letter of the one option that an answer names under the shared rule, or None."""
    text = _undress(prediction)
    lead = _LEAD.match(text)
    rest = text[lead.end() :] if lead else text
    dressed = _LETTER.fullmatch(rest.strip(_EDGES + ")]") or "-")
    letter = dressed[1].upper() if dressed and dressed[1].upper() in LETTERS[: len(options)] else ""
    named = _with_text(text, options) or (_with_text(rest, options) if lead else set())
    if dressed and letter:
        separator, tail = dressed[2], dressed[3]
        if not tail:
            return letter
        also = _with_text(tail, options)
        if separator:
            # "B: text". The whole may be an option's text as well ("A. Lincoln"), but a tail of no option is idle talk.
            named = named | also | {letter} if named or also else set()
        elif also == {letter}:  # "B text"
            named = named | also
    return named.pop() if len(named) == 1 else None


def _undress(text: str) -> str:
    """An answer on one line, without Markdown's and LaTeX's marks."""
    text = _MATHS.sub(r"\1", _plain(text))
    for _ in range(_LATEX_DEPTH):
        text = _LATEX.sub(r"\1", text)
    text = text.translate({ord(mark): None for mark in "*`"})
    dollars = text.strip()
    if len(dollars) > 2 and dollars[0] == dollars[-1] == "$":
        text = dollars[1:-1]
    return " ".join(text.split())


def _plain(text: str) -> str:
    """A text with the signs of full-width and of Chinese writing, quotes and dashes as ASCII has them."""
    return unicodedata.normalize("NFKC", text).translate(_SIGNS)


def _with_text(text: str, options: tuple[str, ...]) -> set[str]:
    """Letters of the options whose text this is: those that are most alike, if any are alike enough."""
    # In lower case an option's own "A" is an article
    texts = [(letter, option.casefold()) for letter, option in zip(LETTERS, options, strict=False)]
    for fold in (_fold, _fold_words, _fold_without_articles):
        wanted = fold(text)
        named = {letter for letter, option in texts if fold(option) == wanted}
        if wanted and named:
            return named
    return set()


def _fold(text: str) -> str:
    return " ".join(_plain(text).casefold().split()).strip(_EDGES)


def _fold_words(text: str) -> str:
    """Words and numbers, without punctuation."""
    text = _plain(text).casefold().replace("'", "")
    return " ".join(_number(_NUMBER_WORDS.get(token, token)) for token in _TOKEN.findall(text))


def _fold_without_articles(text: str) -> str:
    """As :func:`_fold_words`. A capital "A" is no article here, even at the start: it is an option's letter."""
    return _fold_words(_ARTICLES.sub("", " ".join(_plain(text).split())))


def _number(token: str) -> str:
    """A number without thousands separators and superfluous zeros, as text: it may be too long to convert."""
    digits = token.lstrip("-").replace(",", "")
    if not digits[:1].isdecimal():
        return token
    whole, _, fraction = digits.partition(".")
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    number = whole + ("." + fraction if fraction else "")
    return "-" + number if token[0] == "-" and number != "0" else number


_RULES: dict[MatchRule, Callable[[str, VideoQA], bool]] = {
    "exact": lambda prediction, qa: prediction == qa.answer,
    "strict": lambda prediction, qa: match_strict(prediction, qa.answer),
    "robust": lambda prediction, qa: match_robust(prediction, qa.answer, qa.options),
    "one_letter": lambda prediction, qa: match_one_letter(prediction, qa.answer),
    "last_letter": lambda prediction, qa: match_last_letter(prediction, qa.answer),
    "leading_letter": lambda prediction, qa: match_leading_letter(prediction, qa.answer),
    "marked_letter": lambda prediction, qa: match_marked_letter(prediction, qa.answer),
}


_READ_WHOLE: tuple[MatchRule, ...] = ("one_letter", "last_letter")


def match_choice(prediction: str | None, qa: VideoQA, rule: MatchRule) -> bool:
    """Whether a multiple-choice answer is right; None (no answer) is wrong."""
    if prediction is None or (len(prediction) > MAX_ANSWER_CHARS and rule not in _READ_WHOLE):
        return False
    return _RULES[rule](prediction, qa)
