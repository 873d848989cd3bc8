"""EVA's reward (paper section 3.3.2)."""

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentic_video.types.action import Answer, Calls
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory, Turn

MAX_ROUGE_CHARS = 1_000
MAX_ROUGE_WORDS = 500
"""Only this much of an answer and of a reference is compared: ROUGE-L takes time by the product of their lengths."""

ROUGE_KINDS = ("rouge1", "rouge2", "rougeL")


@dataclass(frozen=True)
class EvaWeights:
    """Weights of the reward's terms.

    Attributes:
        acc: Of the accuracy reward (published nowhere).
        format: Of the format reward (published nowhere).
        tool_call: The format reward itself: of an answer without credit that was given after a tool call.
    """

    acc: float = 1.0
    format: float = 1.0
    tool_call: float = 0.05


_UNSPACED = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF)),  # Thai and Lao, Burmese, Khmer
    *((0x3040, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),  # Japanese and Chinese
)
"""Scripts that are written without spaces between words: here each character is one."""


def rouge_words(text: str) -> list[str]:
    """The lower-case words of a text, like ``rouge_score``'s, which keeps only ASCII's, but of every script."""
    words, previous = [""], ""
    for character in unicodedata.normalize("NFKC", text).lower():
        kind = unicodedata.category(character)[0]
        alone = any(first <= ord(character) <= last for first, last in _UNSPACED)
        if kind not in "LNM":
            words.append("")
        elif kind == "M" or not (alone or previous == "alone"):  # vowel signs and accents belong to what they follow
            words[-1] += character
        else:
            words.append(character)
        previous = previous if kind == "M" else "alone" if alone else ""
    return [word for word in words if word][:MAX_ROUGE_WORDS]


class _Tokenizer:
    """Tokenizer for ``rouge_score``, which stems English words in the same way."""

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer

        self._stemmer = PorterStemmer()

    def tokenize(self, text: str) -> list[str]:
        return [self._stemmer.stem(word) if len(word) > 3 and word.isascii() else word for word in rouge_words(text)]


@lru_cache(maxsize=1)
def _rouge_scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # imports nltk, which takes seconds

    return RougeScorer(list(ROUGE_KINDS), tokenizer=_Tokenizer())


def rouge_mean(answer: str, reference: str) -> float:
    """Mean of the F1 of ROUGE-1, ROUGE-2 and ROUGE-L, with stemming; 0.0 to 1.0."""
    scores = _rouge_scorer().score(reference[:MAX_ROUGE_CHARS], answer[:MAX_ROUGE_CHARS])
    return sum(float(scores[kind].fmeasure) for kind in ROUGE_KINDS) / len(ROUGE_KINDS)


def _after_thinking(text: str) -> str:
    """The text behind the turn's one think block; empty when the turn doesn't begin with exactly one."""
    text = text.strip()
    if text.count("<think>") != 1 or text.count("</think>") != 1 or not text.startswith("<think>"):
        return ""
    return text.partition("</think>")[2].strip()


def _answer_turn_ok(turn: Turn) -> bool:
    rest = _after_thinking(turn.text)
    return (
        isinstance(turn.action, Answer)
        and turn.text.count("<answer>") == turn.text.count("</answer>") == 1
        and "tool_call>" not in turn.text
        and rest.startswith("<answer>")
        and rest.endswith("</answer>")
    )


def _call_turn_ok(turn: Turn) -> bool:
    rest = _after_thinking(turn.text)
    return (
        isinstance(turn.action, Calls)
        and turn.legal_calls > 0
        and turn.illegal_calls == 0
        and "answer>" not in turn.text
        and rest.startswith("<tool_call>")
        and rest.endswith("</tool_call>")
    )


def format_ok(trajectory: Trajectory) -> bool:
    """Every turn thinks once and then calls, legally, or, the last one, answers once. Logged only, not paid for."""
    if trajectory.answer is None:
        return False
    *earlier, last = trajectory.turns
    return _answer_turn_ok(last) and all(_call_turn_ok(turn) for turn in earlier)


def eva_score(trajectory: Trajectory, acc: float, credited: float, weights: EvaWeights) -> Score:
    """``w_acc * r_acc + w_fmt * r_fmt`` (paper, equation 3); ``credited`` is ``r_acc``, 0 for an unverified answer.

    Such an answer counts as wrong for ``r_fmt`` too: otherwise it would earn less than a wrong one.
    """
    tried = trajectory.answer is not None and trajectory.tool_calls > 0 and credited == 0.0
    terms = {"acc": weights.acc * credited, "format": weights.format * weights.tool_call * float(tried)}
    return Score(reward=sum(terms.values()), acc=acc, format=float(format_ok(trajectory)), terms=terms)
