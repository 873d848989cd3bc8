"""Questions that a teacher writes: read, checked, and compared with known ones."""

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any

from agentic_video.graders.replies import read_array

MAX_QUESTION_CHARS = 400
MAX_QUESTIONS = 50
"""Of a reply; the rest is ignored."""

_WORD = re.compile(r"\w+")
# Tags of a system's grammar and special tokens of chat templates: they would be read as such.
_MARKUP = re.compile(r"</?[A-Za-z_|]|\|>")
_ABOUT_THE_EXAM = re.compile(r"\b(?:frames?|of the following|the options|the examples?|which option)\b", re.IGNORECASE)
_YES_OR_NO = {"yes", "no", "true", "false"}


@dataclass(frozen=True)
class TeacherQuestion:
    """A question that a teacher wrote, or why it isn't acceptable."""

    question: str = ""
    answer: str = ""
    fault: str = ""


def read_questions(reply: str, most_words: int) -> list[TeacherQuestion] | None:
    """The questions in a reply; None when it is no JSON array, alone or in a code fence."""
    found = read_array(reply)
    if found is None:
        return None
    questions = []
    for raw in found[:MAX_QUESTIONS]:
        fault, question, answer = _checked(raw, most_words)
        questions.append(TeacherQuestion(fault=fault) if fault else TeacherQuestion(question, answer))
    return questions


def _checked(raw: Any, most_words: int) -> tuple[str, str, str]:
    """The fault of a question, if any, and its texts."""
    if not isinstance(raw, dict) or set(raw) != {"question", "answer"}:
        return "not an object with question and answer", "", ""
    if not all(isinstance(value, str) for value in raw.values()):
        return "question or answer is no text", "", ""
    question, answer = (" ".join(raw[name].split()) for name in ("question", "answer"))
    both = question + answer
    faults = {
        "question or answer is empty": not _WORD.search(question) or not _WORD.search(answer),
        "characters that are no text": any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn") for c in both),
        "markup": _MARKUP.search(question) or _MARKUP.search(answer),
        "question too long": len(question) > MAX_QUESTION_CHARS,
        "answer too long": len(answer.split()) > most_words or len(answer) > 20 * most_words,
        "about frames, options or examples": _ABOUT_THE_EXAM.search(question),
        "answered by yes or no": normal(answer) in _YES_OR_NO,
        "answer in the question": f" {normal(answer)} " in f" {normal(question)} ",
    }
    return next((fault for fault, found in faults.items() if found), ""), question, answer


def normal(text: str) -> str:
    """A text's words without case and punctuation, by which equal questions are equal."""
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def similarity(text: str, other: str) -> float:
    """Shared words of two normal texts, of all their words, 0 to 1."""
    words, others = set(text.split()), set(other.split())
    return len(words & others) / len(words | others) if words | others else 1.0


@dataclass
class KnownQuestions:
    """The questions so far, so that no question is written twice.

    A repetition has the same words as any other question, or nearly the same words as one about the same video.
    """

    near: float
    _texts: set[str] = field(default_factory=set)
    _by_video: dict[str, list[str]] = field(default_factory=dict)

    def add(self, question: str, video: str) -> bool:
        """Remember a question; returns False for a repetition."""
        text = normal(question)
        if text in self._texts or any(similarity(text, other) >= self.near for other in self._by_video.get(video, ())):
            return False
        self._texts.add(text)
        self._by_video.setdefault(video, []).append(text)
        return True
