"""Is an answer right? Rules for multiple choice; open-ended answers go to the judge.

One rule is our own and shared (``robust``), one is the narrowest (``strict``), the others are what released code does.
A benchmark's official extraction becomes one more function of (prediction, question) in ``_RULES``.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from agentic_video.types.row import LETTERS, VideoQA, by_letter
from agentic_video.types.written import peeled, plain, undress

MatchRule = Literal["exact", "strict", "robust", "one_letter", "last_letter", "leading_letter", "marked_letter"]
"""``exact``: equal to the gold letter, as strings (FrameThinker's released code). ``strict``: the gold letter, perhaps
with one trailing dot or in brackets, and nothing else. ``robust``: see :func:`match_robust`. ``one_letter``: see
:func:`match_one_letter`. ``last_letter``: see :func:`match_last_letter`. ``leading_letter``: see
:func:`match_leading_letter`. ``marked_letter``: see :func:`match_marked_letter`."""

MAX_ANSWER_CHARS = 4_000
"""A longer answer is wrong, except under ``one_letter`` and ``last_letter``, which read all of it: a letter at the end
of a long text earns nothing."""

_DOTTED = re.compile(r"([A-Z])\.")
_LEADING = re.compile(r"([A-Z])(?:[.\s]|\Z)")
_STRICT = re.compile(r"([A-Z])\.?|\(([A-Z])\)|\[([A-Z])\]")

_LEAD = re.compile(
    r"(?:(?:so|thus|hence|therefore),? )?"
    r"(?:it(?: is|'s) |i(?:'d| would| will)? (?:choose|pick|select|go with) "
    r"|(?:the |my )?(?:final |correct |right |best )?(?:answer|ans|option|choice)\b\.?"
    r"(?: ?-+>?(?= )|(?: is| would be| should be| must be)?(?: ?[:=])?) ?)(?:the (?=option|choice|letter))?"
    # in Chinese, Japanese and Korean: (so,) (the right) answer (is), option, I choose
    r"|(?:(?:所以|因此|综上|故),? ?)?我?(?:正确|最终|最佳|正確|最終)?的?(?:答案|选项|选择|选|選項|選擇|選|答え|정답)"
    r"(?:应该|应|應該)?(?:是|为|為|は|은|는)?(?: ?[:=])? ?",
    re.IGNORECASE,
)
_KIND = re.compile(r"(?:option |choice |letter |选项|选|選項|選) ?", re.IGNORECASE)
_LETTER = re.compile(
    r"[(\[{|]{0,4}([A-Za-z])(?:选项|選項|项|項)?"
    r"(?:([)\]}|.:]+ ?|, ?| - )|( ?(?:[-=/;~|]|->) ?)|$| )(.*)",
    re.DOTALL,
)
"""A letter, what stands between it and an option's text, and the rest. The first kind of mark belongs to a letter; the
second may as well be a part of a text (``T-shirt``, ``A/B``)."""
_CJK_END = re.compile(r"(?:选项|選項|项|項|です|だ|입니다|이다)\Z")
_LAST_LETTER = re.compile(r"(?:(?:option|choice|answer|letter) ?)?[(\[]?([A-Za-z])\Z", re.IGNORECASE)
_BEFORE_LETTER = " ,:;-/(["
_AROUND_LETTER = " .,:;!?\"')]}|"
_EDGES = " .,:;!?\"'"
_SMALL_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_NUMBER_WORDS = {word: str(number) for number, word in enumerate(_SMALL_NUMBERS.split())}
# A number with its sign; a word; any other sign that can carry meaning (50 %, C++).
_TOKEN = re.compile(r"(?<!\w)-?(?:\d{1,3}(?:,\d{3}(?!\d))+|\d+)(?:\.\d+)?|\w+|[^\w\s.,:;!?\"'()\[\]{}-]")
_ARTICLES = re.compile(r"(?<!\S)(?:a|[Tt]he|[Aa]n)(?= \w)")
_THE_ONE = re.compile(r"the\s+(\S.{0,200})\s+one", re.IGNORECASE)
_QUOTIENT = re.compile(r"(?<![\w./])(-?[0-9]{1,9}(?:\.[0-9]{1,9})?)(?:/([0-9]{1,9}))?(?![\w/]|\.[0-9])")
_TO = re.compile(r"(?<=[0-9]) to (?=[0-9])")


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
    return gold.strip().rstrip(".") in _released_readings(prediction)


def match_one_letter(prediction: str, gold: str, options: tuple[str, ...]) -> bool:
    r"""VideoZoomer's released rule, but one option at most is right.

    The released rule takes ``A. \boxed{B}`` for A and for B; here it is B alone: what is boxed counts, where it is one
    of the options' letters. Of an answer that the released rule takes for one option, both say the same.
    """
    letters = tuple(LETTERS[: len(options)])
    named = [reading for reading in _released_readings(prediction) if reading in letters]
    return named[:1] == [gold.strip().rstrip(".")]


def _released_readings(prediction: str) -> tuple[str, str, str]:
    """Boxed text, the last capital before a dot, and all of an answer."""
    dotted = _DOTTED.findall(prediction)
    return (boxed(prediction) or "").strip(), dotted[-1] if dotted else "", prediction.strip()


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

    It names an option by its letter in any common dress (``b``, ``B.``, ``(B)``, ``**B**``, ``$\boxed{\text{B}}$``,
    ``Option B``, ``The answer is B``; in Chinese, too), by its text, or by both (``B: text``, ``text (B)``). A text
    that is an option's letter for letter is that option's. Otherwise texts are compared without case, punctuation,
    articles and the marks of Markdown and LaTeX; numbers by value (``1,000`` is ``1000``, ``three`` is ``3``,
    ``\frac{1}{2}`` is ``0.5``).

    An answer that names no option or several, or a letter with another option's text, is wrong; so is one that
    continues after naming it, because the rest may take it back.
    """
    return named_option(prediction, options) == gold


def named_option(prediction: str, options: tuple[str, ...]) -> str | None:
    """The letter of the one option that an answer names under the shared rule, or None."""
    choices = _choices(options)
    undressed = undress(prediction)
    letter = _bare_letter(undressed, choices)
    for text in dict.fromkeys((*peeled(prediction), *peeled(plain(prediction)))):
        if named := _named(text, choices, _VERBATIM):
            # "$\mathrm{B}$" may be option B, or the text of another
            return named.pop() if len(named) == 1 and letter in ("", *named) else None
    named = _named(undressed, choices, _LOOSE)
    return named.pop() if len(named) == 1 else None


@dataclass(frozen=True)
class _Choices:
    """A question's options.

    Attributes:
        letters: Of the options.
        forms: Per fold each option's letter and text; twice, where options come with their letters.
        misplaced: Whether they begin with letters that aren't their own.
    """

    letters: str
    forms: tuple[tuple[tuple[str, str], ...], ...]
    misplaced: bool


@lru_cache(maxsize=256)
def _choices(options: tuple[str, ...]) -> _Choices:
    texts = list(zip(LETTERS, options, strict=False))
    own = by_letter(options)
    misplaced = list(own) != list(LETTERS[: len(own)])
    if not misplaced:
        texts += own.items()
    # In lower case an option's own "A" is an article
    folded = [
        [(letter, fold(text if fold is _fold_spaces else text.casefold())) for letter, text in texts] for fold in _FOLDS
    ]
    forms = tuple(tuple(dict.fromkeys(item for item in items if item[1])) for items in folded)
    return _Choices(LETTERS[: len(options)], forms, misplaced)


def _named(text: str, choices: _Choices, folds: Sequence[int]) -> set[str]:
    """The letters of the options that a text names, by letters or by what is an option's text under some folds."""
    if bare := _bare_letter(text, choices):
        return {bare}
    lead = _LEAD.match(text)
    rest = text[lead.end() :] if lead else text
    whole = _with_text(text, choices, folds) or (_with_text(rest, choices, folds) if lead else set())
    rest = _without_kind(rest)
    dressed = _LETTER.match(rest)
    if dressed and (letter := dressed[1].upper()) in choices.letters:
        also = next(filter(None, (_with_text(tail, choices, folds) for tail in _tails(rest, dressed))), set())
        if letter in also:
            also = {letter}  # of two that are alike it is the one whose letter it has
        if dressed[2]:
            if whole and not also and folds is _VERBATIM and not choices.misplaced:
                return whole  # "e.g. this" is no option E
            # "B: text". The whole may be an option's text as well ("A. Lincoln"), but a tail of no option is idle talk.
            return whole | also | {letter} if whole or also else set()
        if also == {letter}:  # "B text"
            return whole | also
        if also and not whole and folds is _VERBATIM and dressed[1].isupper():  # in lower case it is an article
            return also | {letter}
    rest = rest.strip(_AROUND_LETTER)
    if not whole and (last := _LAST_LETTER.search(rest)) and (letter := last[1].upper()) in choices.letters:
        head = rest[: last.start()]
        if head[-1:] in _BEFORE_LETTER and _with_text(head.rstrip(_BEFORE_LETTER), choices, folds) == {letter}:
            return {letter}  # "text (B)"
    return whole


def _tails(rest: str, dressed: re.Match[str]) -> Iterator[str]:
    """Candidates for the option's text behind a letter: with and without the sign between them, and its wrappers."""
    yield rest[dressed.end(1) :].strip()
    yield from peeled(dressed[4])


def _bare_letter(text: str, choices: _Choices) -> str:
    """The letter that is all of a text, apart from its lead and its dress; empty where there is more, or none."""
    lead = _LEAD.match(text)
    rest = _CJK_END.sub("", _without_kind(text[lead.end() :] if lead else text).strip(_AROUND_LETTER))
    found = _LETTER.fullmatch(rest)
    letter = found[1].upper() if found and not found[4] and not found[3] else ""
    return letter if letter and letter in choices.letters else ""


def _without_kind(text: str) -> str:
    text = text.lstrip(_EDGES)
    kind = _KIND.match(text)
    return text[kind.end() :] if kind else text


def _with_text(text: str, choices: _Choices, folds: Sequence[int]) -> set[str]:
    """Letters of the options whose text this is: those that are most alike, if any are alike enough."""
    for fold in folds:
        wanted = _FOLDS[fold](text)
        named = {letter for letter, option in choices.forms[fold] if option == wanted}
        if wanted and named:
            return named
    return set()


def _fold_spaces(text: str) -> str:
    return " ".join(text.split())


def _fold(text: str) -> str:
    return " ".join(plain(text).casefold().split()).strip(_EDGES)


def _fold_marks(text: str) -> str:
    return undress(text).casefold().strip(_EDGES)


def _fold_words(text: str) -> str:
    """Words and numbers, without punctuation."""
    text = _TO.sub(" ", undress(text).casefold().replace("'", ""))
    return " ".join(_number(_NUMBER_WORDS.get(token, token)) for token in _TOKEN.findall(text))


def _fold_without_articles(text: str) -> str:
    """Fold words without articles. A capital "A" is no article, even at the start: it is an option's letter."""
    return _fold_words(_ARTICLES.sub("", undress(text)))


def _fold_values(text: str) -> str:
    """Fold like :func:`_fold_without_articles`, with quotients and decimal numbers as the same fractions."""
    text = _QUOTIENT.sub(_as_fraction, undress(text))
    return _fold_without_articles(text)


def _fold_the_one(text: str) -> str:
    """Fold like :func:`_fold_values`, with "the red one" as "red"."""
    found = _THE_ONE.fullmatch(undress(text).strip(_EDGES))
    return _fold_values(found[1] if found else text)


def _as_fraction(found: re.Match[str]) -> str:
    below = int(found[2] or 1)
    return str(Fraction(found[1]) / below).replace("/", "\u00f7") if below else found[0]


_FOLDS: tuple[Callable[[str], str], ...] = (
    _fold_spaces,
    _fold,
    _fold_marks,
    _fold_words,
    _fold_without_articles,
    _fold_values,
    _fold_the_one,
)
_VERBATIM = (0, 1)
_LOOSE = (1, 2, 3, 4, 5, 6)


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
    "one_letter": lambda prediction, qa: match_one_letter(prediction, qa.answer, qa.options),
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
