"""The questions that a teacher writes: read, checked, and told apart from those that there are."""

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any

from agentic_video.graders.replies import read_array

MAX_QUESTION_CHARS = 400
MAX_OFFERED = 50
"""A reply with more questions than this is read up to here."""

_WORD = re.compile(r"\w+")
# Tags of a system's grammar and special tokens of chat templates: they would be read as such.
_MARKUP = re.compile(r"</?[A-Za-z_|]|\|>")
_ABOUT_THE_EXAM = re.compile(r"\b(?:frames?|of the following|the options|the examples?|which option)\b", re.IGNORECASE)
_YES_OR_NO = {"yes", "no", "true", "false"}


@dataclass(frozen=True)
class Rules:
    """When a question of the teacher's is taken."""

    words: int = 8  # most words of an answer
    # two questions about a video that share so much of their words (intersection over union) are the same
    near: float = 0.8


@dataclass(frozen=True)
class TeacherQuestion:
    """A question that a teacher wrote, or why it isn't one."""

    question: str = ""
    answer: str = ""
    fault: str = ""


def read_offers(reply: str, rules: Rules) -> list[TeacherQuestion] | None:
    """The questions in a reply; None when it is no JSON array, alone or in a code fence."""
    found = read_array(reply)
    return None if found is None else [_offer(raw, rules) for raw in found[:MAX_OFFERED]]


def _offer(raw: Any, rules: Rules) -> TeacherQuestion:
    if not isinstance(raw, dict) or set(raw) != {"question", "answer"}:
        return TeacherQuestion(fault="not an object with question and answer")
    if not all(isinstance(value, str) for value in raw.values()):
        return TeacherQuestion(fault="question or answer is no text")
    question, answer = (" ".join(raw[name].split()) for name in ("question", "answer"))
    if not _WORD.search(question) or not _WORD.search(answer):
        return TeacherQuestion(fault="question or answer is empty")
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn") for letter in question + answer):
        return TeacherQuestion(fault="characters that are no text")
    if _MARKUP.search(question) or _MARKUP.search(answer):
        return TeacherQuestion(fault="markup")
    if len(question) > MAX_QUESTION_CHARS:
        return TeacherQuestion(fault="question too long")
    if len(answer.split()) > rules.words or len(answer) > 20 * rules.words:
        return TeacherQuestion(fault="answer too long")
    if _ABOUT_THE_EXAM.search(question):
        return TeacherQuestion(fault="about frames, options or examples")
    if normal(answer) in _YES_OR_NO:
        return TeacherQuestion(fault="answered by yes or no")
    if f" {normal(answer)} " in f" {normal(question)} ":
        return TeacherQuestion(fault="answer in the question")
    return TeacherQuestion(question, answer)


def normal(text: str) -> str:
    """A text by which equal questions are equal: its words, without case and punctuation."""
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def alike(one: str, other: str) -> float:
    """Words that two normal texts share, of all their words, 0 to 1."""
    words, others = set(one.split()), set(other.split())
    return len(words & others) / len(words | others) if words | others else 1.0


@dataclass
class KnownQuestions:
    """The questions that there are, so that none is written twice.

    A question is a repetition when it has the same words as any other, or nearly the same words as one about the same
    video.
    """

    near: float
    _texts: set[str] = field(default_factory=set)
    _by_video: dict[str, list[str]] = field(default_factory=dict)

    def add(self, question: str, video: str) -> bool:
        """Remember a question; False when it is a repetition."""
        text = normal(question)
        if text in self._texts or any(alike(text, other) >= self.near for other in self._by_video.get(video, ())):
            return False
        self._texts.add(text)
        self._by_video.setdefault(video, []).append(text)
        return True
