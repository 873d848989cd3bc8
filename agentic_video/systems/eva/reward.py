"""EVA's reward (paper section 3.3.2)."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

from agentic_video.graders.answer import match_choice
from agentic_video.graders.base import Graders
from agentic_video.graders.verifier import VerifierError
from agentic_video.types.action import Answer, Calls
from agentic_video.types.frame import Frame
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import FrameRef, Trajectory, Turn
from agentic_video.video.errors import VideoError

MAX_ROUGE_CHARS = 1_000
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


@lru_cache(maxsize=1)
def _rouge_scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # imports nltk, which takes seconds

    return RougeScorer(list(ROUGE_KINDS), use_stemmer=True)


def rouge_mean(answer: str, reference: str) -> float:
    """Mean of the F1 of ROUGE-1, ROUGE-2 and ROUGE-L, with stemming; 0.0 to 1.0."""
    scores = _rouge_scorer().score(reference[:MAX_ROUGE_CHARS], answer[:MAX_ROUGE_CHARS])
    return sum(float(scores[kind].fmeasure) for kind in ROUGE_KINDS) / len(ROUGE_KINDS)


def last_retrieval(trajectory: Trajectory) -> tuple[FrameRef, ...]:
    """The frames of the last observation that shows any; empty when nothing was retrieved."""
    for turn in reversed(trajectory.turns):
        refs = tuple(part for part in turn.observation if isinstance(part, FrameRef))
        if refs:
            return refs
    return ()


def verifier_answer(reply: str) -> str:
    """What a verifier answers: the text of its last answer tag, or all of its reply when there is none."""
    start, end = reply.rfind("<answer>"), reply.rfind("</answer>")
    return reply[start + len("<answer>") : end] if 0 <= start < end else reply


async def verify_choice(trajectory: Trajectory, qa: VideoQA, prompt: str, graders: Graders) -> float:
    """Completeness self-verification: can a verifier answer from the frames of the last retrieval alone?

    Args:
        prompt: What the verifier is asked.
        graders: The verifier, and the source of the frames.

    Returns:
        1.0 when the verifier is right; 0.0 when it isn't, or nothing was retrieved (then it isn't asked).

    Raises:
        VerifierError: There is no verifier, it doesn't reply, or the frames can't be had.
    """
    refs = last_retrieval(trajectory)
    if not refs:
        return 0.0
    if graders.verifier is None or graders.source is None:
        raise VerifierError(f"row {qa.id}: self-verification needs a verifier and a source of frames")
    frames: list[Frame] = []
    try:
        for size, group in groupby(refs, key=lambda ref: (ref.width, ref.height)):
            frames += await graders.source.aframes(qa.video, [ref.index for ref in group], size)
    except VideoError as error:
        raise VerifierError(f"row {qa.id}: no frames for the verifier: {error}") from error
    reply = await graders.verifier.ask(prompt, frames)
    return float(match_choice(verifier_answer(reply), qa, "robust"))


def _after_thinking(text: str) -> str:
    """What follows the turn's one think block; empty when the turn doesn't begin with exactly one."""
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
    """``w_acc * r_acc + w_fmt * r_fmt`` (paper, equation 3).

    An answer that is right but not verified has no credit, and counts as wrong for ``r_fmt`` too: otherwise it would
    earn less than a wrong one.

    Args:
        acc: How right the answer is, 0.0 to 1.0.
        credited: ``r_acc``: the same, or 0.0 where the answer isn't verified.
    """
    tried = trajectory.answer is not None and trajectory.tool_calls > 0 and credited == 0.0
    terms = {
        "acc": weights.acc * credited,
        "format": weights.format * weights.tool_call * float(tried),
    }
    return Score(reward=sum(terms.values()), acc=acc, format=float(format_ok(trajectory)), terms=terms)
