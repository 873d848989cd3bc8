"""Options and right answers in the dresses in which they are published."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from agentic_video.types.row import LETTERS, by_letter

MAX_SHOWN = 80
"""Characters of a value in an error message."""

_OPTION_LINE = re.compile(r"\s*[(\[]?([A-Z])[)\].:]+\s*(.*)")
_INLINE = re.compile(r"(?:^|(?<=\s))[(\[]?([A-Z])[)\].:]+\s+")
_HEADING = re.compile(
    r"\s*(?:the )?(?:options?|choices|candidates|candidate answers)\s*(?:are)?\s*:?\s*", re.IGNORECASE
)
_INSTRUCTION = re.compile(
    r"\s*(?:please|answer|respond|select|choose|only|give|provide|the best|your answer|directly)\b", re.IGNORECASE
)
_PLACEHOLDER = re.compile(r"<(?:video|image)>")
_TAGS = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)


class ChoiceError(ValueError):
    """An answer that names no option, or several."""


def clean(text: str) -> str:
    """A text without the placeholders of pictures and videos."""
    return _PLACEHOLDER.sub("", text).strip()


def undress(options: Sequence[str]) -> tuple[str, ...]:
    """Options without their letters, if each begins with its own: "A. cat", "(A) cat", "(A): cat", "A: cat".

    A text that only looks so ("A. Lincoln" among names) stays as it is.

    Raises:
        ChoiceError: The options have the letters A, B, ... in another order: the right one's letter could mean either.
    """
    letters = by_letter(options)
    if not letters:
        return tuple(option.strip() for option in options)
    if list(letters) != sorted(letters):
        raise ChoiceError(f"has its options in the order {', '.join(letters)}; put them in the order of their letters")
    return tuple(letters.values())


def split_question(text: str) -> tuple[str, tuple[str, ...]]:
    """Question and options of a text that holds both.

    The options are the last lines that begin with the letters A, B, C ... in a dress, each letter once, in any order:
    they are read by their letters. An instruction after them is left out. Where no lines are marked, marks within one
    line count.

    Returns:
        The question and its options in the order of their letters; no options where there are none.

    Raises:
        ChoiceError: There are options, but one is blank, a letter is missing or there twice, or it is not
            clear where they begin.
    """
    text = clean(text)
    lines = text.splitlines()
    marks = [
        _OptionMark(number, found[1]) for number, line in enumerate(lines) if (found := _OPTION_LINE.fullmatch(line))
    ]
    first = _first_option(marks, lambda start, end: "\n".join(lines[start:end]))
    if first is None:
        return _split_line(text)
    run = marks[first:]
    ends = [mark.place for mark in run[1:]] + [_end_of_options(lines, run[-1].place)]
    texts = {}
    for mark, end in zip(run, ends, strict=True):
        own = _OPTION_LINE.sub(r"\2", lines[mark.place], count=1)
        parts = map(str.strip, (own, *lines[mark.place + 1 : end]))
        texts[mark.letter] = " ".join(part for part in parts if part)
    options = _in_order(texts)
    before = lines[: run[0].place]
    while before and (not before[-1].strip() or _HEADING.fullmatch(before[-1])):
        before.pop()
    return "\n".join(before).strip(), options


@dataclass(frozen=True)
class _OptionMark:
    """A letter in its dress, and the place (line or character) where it stands."""

    place: int
    letter: str


def _is_complete(letters: Sequence[str]) -> bool:
    """Whether letters are A, B, ... without a gap, each once, in any order."""
    return len(letters) >= 2 and sorted(letters) == list(LETTERS[: len(letters)])


def _first_option(marks: Sequence[_OptionMark], between: Callable[[int, int], str]) -> int | None:
    """Index of the first option's mark, where all marks from it on are options; None without options."""
    letters = [mark.letter for mark in marks]
    starts = [start for start in range(len(marks)) if _is_complete(letters[start:])]
    if not starts:
        if "A" in letters and "B" in letters[letters.index("A") :]:
            raise ChoiceError(
                f"holds options that can't be told apart by their letters ({', '.join(letters)}): "
                "each letter from A on must be there once"
            )
        return None
    for start, shorter in pairwise(starts):
        if not between(0, marks[start].place).strip():
            continue  # it would leave no question
        # "C. Berg asks:" before A and B is part of the question, "C. ice" an option out of order.
        leading = between(marks[start].place, marks[shorter].place).splitlines()
        if any(line.rstrip().endswith((":", "?")) for line in leading):
            raise ChoiceError(
                f"may begin its options with {letters[start]} or with {letters[shorter]}: "
                "put them in the order of their letters"
            )
        return start
    return starts[-1]


def _end_of_options(lines: Sequence[str], last: int) -> int:
    """The line where the last option's text ends: at a blank line or an instruction."""
    for number in range(last + 1, len(lines)):
        if not lines[number].strip() or _INSTRUCTION.match(lines[number]):
            return number
    return len(lines)


def _split_line(text: str) -> tuple[str, tuple[str, ...]]:
    found = list(_INLINE.finditer(text))
    marks = [_OptionMark(mark.start(), mark[1]) for mark in found]
    first = _first_option(marks, lambda start, end: text[start:end])
    if first is None:
        return text, ()
    run = found[first:]
    ends = [mark.start() for mark in run[1:]] + [len(text)]
    texts = {mark[1]: text[mark.end() : end].strip() for mark, end in zip(run, ends, strict=True)}
    return text[: run[0].start()].strip(), _in_order(texts)


def _in_order(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Options by letter, in the order of their letters."""
    blank = [letter for letter in sorted(texts) if not texts[letter]]
    if blank:
        raise ChoiceError(f"holds no text for option {blank[0]}")
    return tuple(texts[letter] for letter in sorted(texts))


def in_tags(text: str) -> str:
    """Text in the last ``<answer>`` tags, or all of it without tags."""
    found = _TAGS.findall(text)
    return (found[-1] if found else text).strip()


def is_letter(text: str) -> bool:
    """Whether an answer is an option's letter, with or without its dress and tags."""
    return re.fullmatch(r"[(\[]?[A-Z][)\].:]*", in_tags(text)) is not None


def from_letter(value: Any, options: Sequence[str]) -> str:
    """The letter that "B", "b", "(B)", "B." or "B. its text" names, ``<answer>`` tags around it or not."""
    text = in_tags(value) if isinstance(value, str) else ""
    alone = re.fullmatch(r"[(\[]?([A-Za-z])[)\].:]*", text)
    with_text = re.fullmatch(r"[(\[]?([A-Z])(?:[)\].:]+\s*|\s+)(.+)", text, re.DOTALL)
    named = alone or with_text
    letter = named[1].upper() if named else ""
    if not letter or letter not in LETTERS[: len(options)]:
        raise ChoiceError(f"must be a letter from A to {LETTERS[len(options) - 1]}, got {shorten(value)}")
    if not alone and with_text and not same(with_text[2], options[LETTERS.index(letter)]):
        raise ChoiceError(f"is {shorten(value)}, but option {letter} is {shorten(options[LETTERS.index(letter)])}")
    return letter


def from_text(value: Any, options: Sequence[str]) -> str:
    """The letter of the one option with this text, up to case, white space and a final dot."""
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    named = [letter for letter, option in zip(LETTERS, options, strict=False) if option == text]
    if text and not named:
        named = [letter for letter, option in zip(LETTERS, options, strict=False) if same(option, text)]
    if len(named) != 1:
        number = f"{len(named)} options" if named else "no option"
        raise ChoiceError(
            f"must be the text of one option, but {number} of {shorten(list(options))} is {shorten(value)}"
        )
    return named[0]


def from_index(value: Any, options: Sequence[str]) -> str:
    """The letter of option ``value``, counted from 0; also a number written as text ("2") or as 2.0."""
    try:
        index = -1 if isinstance(value, bool) else int(float(value)) if float(value) == int(float(value)) else -1
    except (TypeError, ValueError, OverflowError):
        index = -1
    if not 0 <= index < len(options):
        raise ChoiceError(f"must be a number from 0 to {len(options) - 1}, got {shorten(value)}")
    return LETTERS[index]


def same(text: str, other: str) -> bool:
    """Whether two texts are the same up to case, white space and a final dot."""
    return _fold(text) == _fold(other)


def _fold(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".")


def shorten(value: Any) -> str:
    """A published value as text for a message."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
