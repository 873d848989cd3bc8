"""TimeSearch-R's reward (paper; released code for its weights and the rules of form)."""

import re
from dataclasses import dataclass

from agentic_video.graders.answer import MatchRule
from agentic_video.graders.judge import Judge, grade_answer
from agentic_video.systems.blocks import answer_or_all, read_blocks
from agentic_video.types.action import Answer
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory

TAGS = ("think", "tool_call", "answer")
SEQUENCE = "sequence"
"""``extra_info.type`` of a row whose answer is an order of its parts, e.g. ``(b)(a)(c)``."""
_PART = re.compile(r"\([a-g1-6]\)")


@dataclass(frozen=True)
class TimeSearchWeights:
    """Weights of the reward's terms.

    Attributes:
        format: Of following the grammar in every turn.
        acc: Of a right answer, in proportion to its grade.
        completeness: Of a right answer that the searched frames alone give, too (the paper adds up all three: 1, 1, 1).
    """

    format: float = 1.0
    acc: float = 0.5
    completeness: float = 0.5


def format_ok(trajectory: Trajectory) -> bool:
    """The episode is answered, and every turn is one thought and then one call or the answer, nothing else.

    The call itself isn't read: an unreadable one gets a hint, and the form stands (released code).
    """
    if trajectory.answer is None:
        return False
    for turn in trajectory.turns:
        read = read_blocks(turn.text, TAGS)
        last = "answer" if isinstance(turn.action, Answer) else "tool_call"
        if not read.clean or [block.tag for block in read.blocks] != ["think", last]:
            return False
    return True


def mixes(trajectory: Trajectory) -> bool:
    """Whether a turn opens both a call and an answer, for which no answer counts (released code)."""
    return any("<tool_call>" in turn.text and "<answer>" in turn.text for turn in trajectory.turns)


async def accuracy(
    answer: str | None, qa: VideoQA, rule: MatchRule, max_answer_chars: int, judge: Judge | None
) -> float:
    """Grade an answer, 0 to 1, by the kind of question: a choice by rule, an interval by its IoU, an order of
    parts by equality, all else by the judge, 0 or 1.

    Args:
        max_answer_chars: An open-ended answer of so many characters isn't shown to the judge: it is wrong.
    """
    if answer is None:
        return 0.0
    if qa.answer_type == "open_ended":
        if qa.extra.get("type") == SEQUENCE:
            order = _PART.findall(qa.answer)
            return float(bool(order) and _PART.findall(answer) == order)
        if len(answer.strip()) >= max_answer_chars:
            return 0.0
    return await grade_answer(answer, qa, rule, judge)


def verified_answer(said: str) -> str:
    """The self-verification's answer: the text of its last answer tag, else all of it."""
    return answer_or_all(said).strip()


def timesearch_score(trajectory: Trajectory, acc: float, verified: float, weights: TimeSearchWeights) -> Score:
    """``w_format * format + w_acc * acc + w_completeness * [acc > 0.5][verified > 0.5]``.

    Args:
        verified: Grade of what the same policy answers from the searched frames alone; 0 where it wasn't asked.
    """
    fmt = float(format_ok(trajectory))
    terms = {
        "format": weights.format * fmt,
        "acc": weights.acc * acc,
        "completeness": weights.completeness * float(acc > 0.5 and verified > 0.5),
    }
    return Score(reward=sum(terms.values()), acc=acc, format=fmt, terms=terms)
