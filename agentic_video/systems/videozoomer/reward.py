"""VideoZoomer's reward (paper section 3.3 and Table 5; released code for the format rules)."""

from dataclasses import dataclass

from agentic_video.types.action import Answer, Calls
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory, Turn


@dataclass(frozen=True)
class VideoZoomerWeights:
    """Weights of the reward's terms.

    Attributes:
        acc: Of a right answer.
        format: Of following the grammar in every turn.
        tool: Bonus for a right answer reached with the tool (paper, Table 5; the released script leaves it at 0).
    """

    acc: float = 0.9
    format: float = 0.1
    tool: float = 0.5


def _thinks_then(text: str, rest: str) -> bool:
    """Whether the turn is one think block and then exactly one ``rest`` block, nothing else but white space."""
    text = text.strip()
    if any(text.count(tag) != 1 for tag in ("<think>", "</think>", f"<{rest}>", f"</{rest}>")):
        return False
    think, _, tail = text.partition("</think>")
    tail = tail.strip()
    return think.startswith("<think>") and tail.startswith(f"<{rest}>") and tail.endswith(f"</{rest}>")


def _call_turn_ok(turn: Turn) -> bool:
    return (
        isinstance(turn.action, Calls)
        and turn.legal_calls == 1
        and turn.illegal_calls == 0
        and "<answer>" not in turn.text
        and "</answer>" not in turn.text
        and _thinks_then(turn.text, "video_zoom")
    )


def _answer_turn_ok(turn: Turn) -> bool:
    return (
        isinstance(turn.action, Answer)
        and "<video_zoom>" not in turn.text
        and "</video_zoom>" not in turn.text
        and _thinks_then(turn.text, "answer")
    )


def format_ok(trajectory: Trajectory) -> bool:
    """Last turn: think, then exactly one answer, no zoom; every earlier one: think, then exactly one legal zoom, no
    answer (released code)."""
    if trajectory.answer is None:
        return False
    *earlier, last = trajectory.turns
    return _answer_turn_ok(last) and all(_call_turn_ok(turn) for turn in earlier)


def videozoomer_score(trajectory: Trajectory, acc: float, weights: VideoZoomerWeights) -> Score:
    """``w_acc * acc + w_format * format + w_tool * [tool used and acc = 1]``.

    Args:
        trajectory: The finished episode.
        acc: 1.0 for a right answer, else 0.0.
        weights: Weights of the terms.
    """
    fmt = float(format_ok(trajectory))
    terms = {
        "acc": weights.acc * acc,
        "format": weights.format * fmt,
        "tool": weights.tool * float(trajectory.tool_calls > 0 and acc == 1.0),
    }
    return Score(reward=sum(terms.values()), acc=acc, format=fmt, terms=terms)
