"""Is an answer right? Rules for multiple choice; open-ended answers go to the judge."""

import re
from typing import Literal

from agentic_video.data.schema import LETTERS, VideoQA

MatchRule = Literal["exact", "videozoomer", "robust"]
MAX_ANSWER_CHARS = 4_000
"""Only this much of an answer's end is looked at; nobody earns more by writing more."""


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


def match_videozoomer(prediction: str, gold: str) -> bool:
    r"""VideoZoomer's released rule (code): the answer equals the gold letter (gold without a trailing "."), or its
    boxed content does, or its last ``([A-Z])\.`` does."""
    prediction, gold = prediction.strip(), gold.strip().rstrip(".")
    dotted = re.findall(r"([A-Z])\.", prediction)
    return prediction == gold or (boxed(prediction) or "").strip() == gold or (bool(dotted) and dotted[-1] == gold)


def match_robust(prediction: str, gold: str, options: tuple[str, ...]) -> bool:
    """The shared rule: a letter in any common dress (``b``, ``B.``, ``(B)``, ``B: text``, boxed), or the option's text.

    An answer that names no option, or more than one, is wrong.
    """
    prediction = (boxed(prediction) or prediction).strip()
    letters = LETTERS[: len(options)]
    plain = prediction.strip(" \t\n.,:;()[]*\"'").upper()
    if len(plain) == 1 and plain in letters:
        return plain == gold
    lead = re.match(r"\(?([A-Z])[).:]\s*(.*)", prediction, re.DOTALL)
    if lead and lead[1] in letters:
        text = _fold(lead[2])
        if not text or text == _fold(options[letters.index(lead[1])]):
            return lead[1] == gold
        return False
    named = [letter for letter, option in zip(letters, options, strict=True) if _fold(option) == _fold(prediction)]
    return named == [gold]


def _fold(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .,:;!\"'")


def match_choice(prediction: str | None, qa: VideoQA, rule: MatchRule) -> bool:
    """Whether a multiple-choice answer is right; None (no answer) is wrong."""
    if prediction is None:
        return False
    prediction = prediction[-MAX_ANSWER_CHARS:]
    if rule == "exact":
        return prediction == qa.answer
    if rule == "videozoomer":
        return match_videozoomer(prediction, qa.answer)
    return match_robust(prediction, qa.answer, qa.options)
