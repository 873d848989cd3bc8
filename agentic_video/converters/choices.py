"""Options and right answers in the dresses in which they are published."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from agentic_video.types.row import LETTERS

MAX_SHOWN = 60
"""Characters of an answer in an error message."""

_MARK = r"[(\[]?{letter}[)\].:]+"
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
    """
    bare = []
    for letter, option in zip(LETTERS, options, strict=False):
        found = re.fullmatch(_MARK.format(letter=letter) + r"\s*(.+)", option.strip(), re.DOTALL)
        if not found:
            return tuple(option.strip() for option in options)
        bare.append(found[1].strip())
    return tuple(bare)


def split_question(text: str) -> tuple[str, tuple[str, ...]]:
    """Question and options of a text that holds both.

    The options are the last run of lines that begin with A, B, C ... in a dress; an instruction after them is left out.
    Where no lines are marked, a run within one line counts.

    Returns:
        The question and its options; no options where there are none.
    """
    text = clean(text)
    lines = text.splitlines()
    for start in reversed(range(len(lines))):
        first = _OPTION_LINE.fullmatch(lines[start])
        if first and first[1] == "A":
            options = _options_from(lines[start:])
            if len(options) >= 2 and all(options):
                before = lines[:start]
                while before and (not before[-1].strip() or _HEADING.fullmatch(before[-1])):
                    before.pop()
                return "\n".join(before).strip(), options
    return _split_line(text)


def _options_from(lines: Sequence[str]) -> tuple[str, ...]:
    options: list[str] = []
    for line in lines:
        marked = _OPTION_LINE.fullmatch(line)
        if marked and marked[1] == LETTERS[len(options) % len(LETTERS)] and len(options) < len(LETTERS):
            options.append(marked[2].strip())
        elif len(options) >= 2 and (not line.strip() or _INSTRUCTION.match(line)):
            break
        elif line.strip():
            options[-1] = f"{options[-1]} {line.strip()}".strip()
    return tuple(options)


def _split_line(text: str) -> tuple[str, tuple[str, ...]]:
    marks = list(_INLINE.finditer(text))
    for start in reversed(range(len(marks))):
        if marks[start][1] != "A":
            continue
        run = [marks[start]]
        for mark in marks[start + 1 :]:
            if mark[1] == LETTERS[len(run) % len(LETTERS)]:
                run.append(mark)
        ends = [mark.start() for mark in run[1:]] + [len(text)]
        options = tuple(text[mark.end() : end].strip() for mark, end in zip(run, ends, strict=True))
        if len(options) >= 2 and all(options):
            return text[: run[0].start()].strip(), options
    return text, ()


def in_tags(text: str) -> str:
    """What stands in the last ``<answer>`` tags, or the text itself where there are none."""
    found = _TAGS.findall(text)
    return (found[-1] if found else text).strip()


def is_letter(text: str) -> bool:
    """Whether an answer is an option's letter, with or without its dress and tags."""
    return re.fullmatch(r"[(\[]?[A-Z][)\].:]*", in_tags(text)) is not None


def from_letter(value: Any, options: Sequence[str]) -> str:
    """The letter that "B", "b", "(B)", "B." or "B. its text" names, ``<answer>`` tags around it or not.

    Raises:
        ChoiceError: It names no option, or the text after the letter is another option's.
    """
    text = in_tags(value) if isinstance(value, str) else ""
    alone = re.fullmatch(r"[(\[]?([A-Za-z])[)\].:]*", text)
    with_text = re.fullmatch(r"[(\[]?([A-Z])(?:[)\].:]+\s*|\s+)(.+)", text, re.DOTALL)
    named = alone or with_text
    letter = named[1].upper() if named else ""
    if not letter or letter not in LETTERS[: len(options)]:
        raise ChoiceError(f"must be a letter from A to {LETTERS[len(options) - 1]}, got {_short(value)}")
    if not alone and with_text and _fold(with_text[2]) != _fold(options[LETTERS.index(letter)]):
        raise ChoiceError(f"is {_short(value)}, but option {letter} is {_short(options[LETTERS.index(letter)])}")
    return letter


def from_text(value: Any, options: Sequence[str]) -> str:
    """The letter of the one option with this text, up to case, white space and a final dot.

    Raises:
        ChoiceError: No option or several have it.
    """
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    named = [letter for letter, option in zip(LETTERS, options, strict=False) if option == text]
    if text and not named:
        named = [letter for letter, option in zip(LETTERS, options, strict=False) if _fold(option) == _fold(text)]
    if len(named) != 1:
        number = f"{len(named)} options" if named else "no option"
        raise ChoiceError(f"must be the text of one option, but {number} of {_short(list(options))} is {_short(value)}")
    return named[0]


def from_index(value: Any, options: Sequence[str]) -> str:
    """The letter of option ``value``, counted from 0; also a number written as text ("2") or as 2.0.

    Raises:
        ChoiceError: There is no such option.
    """
    try:
        index = -1 if isinstance(value, bool) else int(float(value)) if float(value) == int(float(value)) else -1
    except (TypeError, ValueError, OverflowError):
        index = -1
    if not 0 <= index < len(options):
        raise ChoiceError(f"must be a number from 0 to {len(options) - 1}, got {_short(value)}")
    return LETTERS[index]


def _fold(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
