"""ParaVT's reward: accuracy, format and tool (released code; the format's anchors are the paper's)."""

import re
from dataclasses import dataclass

from agentic_video.systems.blocks import read_blocks
from agentic_video.systems.paravt.grammar import CALL_TAGS, TAGS
from agentic_video.types.action import Answer, Calls
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory, Turn

MIN_THOUGHT = 10
"""A shorter thought, in characters, is none."""
MAX_MATCH_CHARS = 4_000
"""A longer open answer is wrong: its words would be compared one by one."""
CLOSED_THOUGHT, ANSWER_FOLLOWS, UNCLOSED_THOUGHT = 0.4, 0.3, -0.3
THOUGHT_BEFORE_CALL, BALANCED = 0.3, 0.1

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = re.compile(r"[^\w\s]")


@dataclass(frozen=True)
class ParaVTWeights:
    """Weights of the reward's terms.

    Attributes:
        acc: Of the accuracy.
        format: Of the format's score.
        think: In the format's score: a thought of at least 10 characters.
        answer_opened: In the format's score: the opening tag of an answer that isn't empty.
        answer_closed: In the format's score: its closing tag.
        anchor: In the format's score: of the anchors (0.4 for a closed thought, 0.3 more where an answer follows it,
            -0.3 for one that is never closed); 0 is plain GRPO.
        call: The tool's score of an episode with a call that was carried out.
        call_replied: The same where the reply stands in the scored text: the released code means 0.3, but scores what
            the agent said, which never holds one.
        call_right: Added to the tool's score of an answer that earns accuracy.
    """

    acc: float = 1.0
    format: float = 1.0
    think: float = 0.2
    answer_opened: float = 0.3
    answer_closed: float = 0.2
    anchor: float = 0.5
    call: float = 0.1
    call_replied: float = 0.1
    call_right: float = 0.5


def words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation and English articles."""
    return _PUNCTUATION.sub("", _ARTICLES.sub(" ", text.strip().lower())).split()


def word_f1(answer: str, reference: str) -> float:
    """F1 of an answer's words, each found once (released code); 1.0 for equal texts.

    An answer without words is never right: in the released code ``.`` equals ``A``.
    """
    if len(answer) > MAX_MATCH_CHARS:
        return 0.0
    said, wanted = words(answer), words(reference)
    common = len(set(said) & set(wanted))
    if said and said == wanted:
        return 1.0
    return 2 * common / (len(said) + len(wanted)) if common else 0.0


def same_words(answer: str, reference: str) -> float:
    """1.0 where both are the same words in the same order, else 0.0."""
    said = words(answer) if len(answer) <= MAX_MATCH_CHARS else []
    return float(bool(said) and said == words(reference))


def scored_text(trajectory: Trajectory) -> str:
    """The text whose format is scored: the agent's turns with their given beginnings, without tools' replies."""
    return "".join(turn.text for turn in trajectory.turns)


def format_score(text: str, called: bool, weights: ParaVTWeights) -> float:
    """The format's score, at most 1; below 0 where there is nothing but a thought that is too short and never closed.

    Args:
        called: Whether a call was carried out.
    """
    thinks = len(_first_thought(text).strip()) >= MIN_THOUGHT
    closed = "</think>" in text
    answers = _answers(text)
    score = weights.think * thinks + (weights.answer_opened + weights.answer_closed) * answers
    anchor = CLOSED_THOUGHT * (closed and thinks) + ANSWER_FOLLOWS * (closed and thinks and answers)
    anchor += UNCLOSED_THOUGHT * ("<think>" in text and not closed)
    score += weights.anchor * anchor
    if called and thinks and _thinks_before_calling(text):
        score += THOUGHT_BEFORE_CALL
    if score > 0 and all(text.count(f"<{tag}>") == text.count(f"</{tag}>") for tag in TAGS):
        score += BALANCED
    return min(score, 1.0)


def _first_thought(text: str) -> str:
    """The text behind the first opening tag: up to the closing one, or else to whatever begins next."""
    _, opened, rest = text.partition("<think>")
    if not opened:
        return ""
    end = rest.find("</think>")
    if end >= 0:
        return rest[:end]
    return rest[: min((at for at in map(rest.find, ("<tool_", "<answer>")) if at >= 0), default=len(rest))]


def _answers(text: str) -> bool:
    """Whether there is an answer in tags that isn't empty."""
    rest = text
    while True:
        _, opened, rest = rest.partition("<answer>")
        body, closed, rest = rest.partition("</answer>")
        if not opened or not closed:
            return False
        if body.strip():
            return True


def _thinks_before_calling(text: str) -> bool:
    calls = [at for at in (text.find(f"<{tag}>") for tag in CALL_TAGS) if at >= 0]
    return bool(calls) and 0 <= text.find("<think>") < min(calls)


def tool_score(called: bool, acc: float, weights: ParaVTWeights) -> float:
    """The tool's score, at most 1; 0 without a call that was carried out."""
    if not called:
        return 0.0
    return min(max(weights.call, weights.call_replied) + weights.call_right * (acc > 0), 1.0)


def _turn_ok(turn: Turn) -> bool:
    read = read_blocks(turn.text, TAGS)
    tags = [block.tag for block in read.blocks]
    if not read.clean or tags[:1] != ["think"] or not read.blocks[0].body.strip():
        return False
    if isinstance(turn.action, Answer):
        return tags[1:] == ["answer"]
    return (
        isinstance(turn.action, Calls)
        and turn.legal_calls > 0
        and turn.illegal_calls == 0
        and len(tags) > 1
        and set(tags[1:]) <= set(CALL_TAGS)
    )


def format_ok(trajectory: Trajectory) -> bool:
    """Every turn thinks, then calls, all of it legally, or, the last one, answers once. Logged, and asked of
    demonstrations; what is paid for is :func:`format_score`."""
    return trajectory.answer is not None and all(_turn_ok(turn) for turn in trajectory.turns)


def paravt_score(trajectory: Trajectory, acc: float, weights: ParaVTWeights) -> Score:
    """``acc + format + tool``."""
    called = trajectory.tool_calls > 0
    terms = {
        "acc": weights.acc * acc,
        "format": weights.format * format_score(scored_text(trajectory), called, weights),
        "tool": tool_score(called, acc, weights),
    }
    return Score(sum(terms.values()), acc, float(format_ok(trajectory)), terms)
