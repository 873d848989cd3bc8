"""Video-o3's reward: accuracy, format, and a bonus for looks that cover the clues (released port)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agentic_video.grounding.intervals import merged, set_diou, set_iog, set_iop, set_iou
from agentic_video.systems.videoo3.grammar import call_body, thinks_then
from agentic_video.tools.base import ToolError
from agentic_video.tools.ground_segment import check_grounding, json_errors, read_grounding
from agentic_video.types.action import Calls
from agentic_video.types.row import INTERVAL_TYPES, Interval, VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory, Turn

RewardClass = Literal["single_tool", "multi_tool", "any_tool", "single_direct", "free", "none"]
"""Kinds of bonus. ``single_tool``, ``multi_tool``: looks that cover its one clue, or its several ones.
``any_tool``: looks, wherever. ``single_direct``: no look, as its clue fills most of the video. ``free``: whichever.
``none``: there is no bonus (questions of evaluations)."""

CLASSES: Mapping[str, RewardClass] = {
    "clue_single_w_tool": "single_tool",
    "tool_reward_with_round_penalty": "single_tool",
    "temporal_grounded_qa_iou": "single_tool",
    "clue_multi_w_tool": "multi_tool",
    "tool_reward_without_round_penalty": "multi_tool",
    "temporal_grounded_qa": "any_tool",
    "clue_single_wo_tool": "single_direct",
    "tool_penalty_single_turn": "single_direct",
    "clue_multi_wo_tool": "free",
    "tool_free_form": "free",
}
"""The class that a name stands for in the released rows' ``data_source``."""


@dataclass(frozen=True)
class VideoO3Weights:
    """Weights of the reward's terms.

    Attributes:
        acc: Of a right answer, or of the overlap of an answered segment.
        format: Of following the grammar in every turn.
        clue: Of the bonus; 0 pays none.
        call_decay: Taken off the bonus for each call after the first, in questions of one clue; twice that where
            no call is needed.
        direct: The bonus of a right answer without a call, in questions of one clue that need none.
        free: The bonus of a right answer where calls make no difference.
    """

    acc: float = 1.0
    format: float = 1.0
    clue: float = 1.0
    call_decay: float = 0.05
    direct: float = 0.75
    free: float = 0.5


def reward_class(qa: VideoQA, unnamed: RewardClass) -> RewardClass:
    """The class of a question, by its ``extra_info.reward_class``, else its data source, else ``unnamed``."""
    names = (qa.extra.get("reward_class"), qa.data_source)
    return next((CLASSES[name] for name in names if isinstance(name, str) and name in CLASSES), unnamed)


def format_score(trajectory: Trajectory) -> float:
    """1 where the last turn is a thought and an answer and earlier ones a thought and a call, less errors in calls'
    JSON."""
    if trajectory.answer is None:
        return 0.0
    *earlier, last = trajectory.turns
    if not thinks_then(last.text, "answer") or not all(thinks_then(turn.text, "grounding") for turn in earlier):
        return 0.0
    errors = sum(json_errors(call_body(turn.text) or "") for turn in earlier)
    return max(0.0, 1.0 - errors / len(trajectory.turns))


def answers_segment(trajectory: Trajectory) -> bool:
    """Whether the last turn is a thought and an answer whose JSON has the two times of a ``temporal_segment``."""
    if trajectory.answer is None or not thinks_then(trajectory.turns[-1].text, "answer"):
        return False
    try:
        segment = read_grounding(trajectory.answer).get("temporal_segment")
    except ToolError:
        return False
    return isinstance(segment, list) and len(segment) == 2


def called_spans(trajectory: Trajectory) -> tuple[Interval, ...]:
    """The segments of all calls that were carried out, in seconds."""
    return tuple(span for turn in trajectory.turns if (span := _span(turn)) is not None)


def _span(turn: Turn) -> Interval | None:
    if not isinstance(turn.action, Calls) or not turn.legal_calls:
        return None
    try:
        # The video's length isn't known here: an end beyond it only lowers what the segment earns.
        request = check_grounding(turn.action.calls[0].arguments, float("inf"))
    except ToolError:
        return None
    return request.start, request.end


def single_clue_overlap(spans: Sequence[Interval], clues: Sequence[Interval]) -> float:
    """Coverage of one clue by looks, 0 to 1: the mean of IoU, IoP, IoG and DIoU brought to that scale."""
    if not merged(spans) or not merged(clues):
        return 0.0
    nearness = (set_diou(spans, clues) + 1) / 2
    return (set_iou(spans, clues) + set_iop(spans, clues) + set_iog(spans, clues) + nearness) / 4


def multi_clue_overlap(spans: Sequence[Interval], clues: Sequence[Interval]) -> float:
    """Coverage of several clues by looks, 0 to 1: the mean of IoU twice, IoP and IoG."""
    return (2 * set_iou(spans, clues) + set_iop(spans, clues) + set_iog(spans, clues)) / 4


def clue_bonus(trajectory: Trajectory, clues: Sequence[Interval], kind: RewardClass, weights: VideoO3Weights) -> float:
    """The bonus of a right and well-formed episode, before its weight.

    Args:
        clues: Where the evidence is, in seconds.
        kind: The question's class.
    """
    asked = len(trajectory.turns) - 1  # every turn but the last one calls
    match kind:
        case "none":
            return 0.0
        case "free":
            return weights.free
        case "single_direct":
            return weights.direct * max(0.0, 1 - 2 * weights.call_decay * asked)
    # A refused call is no look, though it counts as one more call.
    spans = called_spans(trajectory)
    if not spans:
        return 0.0
    if kind == "multi_tool":
        return (multi_clue_overlap(spans, clues) + 1) / 2
    overlap = single_clue_overlap(spans, clues) if kind == "single_tool" else 0.5
    return max(0.0, 1 - weights.call_decay * (asked - 1)) * (overlap + 1) / 2


def videoo3_score(
    trajectory: Trajectory, qa: VideoQA, acc: float, weights: VideoO3Weights, unnamed: RewardClass
) -> Score:
    """``w_acc * acc + w_format * format + w_clue * bonus``; the bonus only where both are 1.

    Args:
        unnamed: The class of a question that names none.
    """
    if qa.answer_type in INTERVAL_TYPES:
        fmt, bonus = float(answers_segment(trajectory)), 0.0
    else:
        fmt = format_score(trajectory)
        earned = acc == 1.0 and fmt == 1.0
        bonus = clue_bonus(trajectory, qa.windows, reward_class(qa, unnamed), weights) if earned else 0.0
    terms = {"acc": weights.acc * acc, "format": weights.format * fmt, "clue": weights.clue * bonus}
    return Score(reward=sum(terms.values()), acc=acc, format=float(fmt == 1.0), terms=terms)
