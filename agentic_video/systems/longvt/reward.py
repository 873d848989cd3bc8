"""LongVT's reward (paper section 3.3, equations for R_acc, R_fmt and R_time; released code for the rules)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from agentic_video.grounding.intervals import iog, iou
from agentic_video.grounding.looks import last_look
from agentic_video.types.row import INTERVAL_TYPES, Interval, VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory

TimeReward = Literal["iou", "recall"]
"""Reward of a crop: its intersection over union with the gold window, or the share of the window within it."""

TOOL_FROM = 0.5
"""The tool bonus needs an answer at least so right (released code)."""

_TAG = re.compile(r"<(/?)(think|tool_call|answer)>")


@dataclass(frozen=True)
class LongVTWeights:
    """Weights of the reward's terms.

    Attributes:
        acc: Of a right answer (0.8 in the released reward without a term for time).
        format: Of following the grammar (0.2 in the same).
        time: Of the last crop's overlap with the gold window.
        tool: Bonus for an answer that is at least half right after a crop (0 in the published runs; 1, with ``time`` at
            0, in the paper's ablation).
    """

    acc: float = 1.0
    format: float = 1.0
    time: float = 1.0
    tool: float = 0.0


def format_ok(texts: Sequence[str]) -> bool:
    """An episode's turns are think, then (one call, think) any number of times, then one answer.

    As in the released code they are read as one text: two calls in a turn have no thought between them. Text outside
    the tags is no fault, except between the thought and the answer of an episode without calls.
    """
    whole = "\n".join(texts).strip()
    tags = [f"{close}{name}" for close, name in _TAG.findall(whole)]
    names = tags[::2]
    if [f"/{name}" for name in names] != tags[1::2] or not whole.startswith("<think>"):
        return False
    if not whole.endswith("</answer>") or len(names) % 2 or names[-2:] != ["think", "answer"]:
        return False
    if any(pair not in (("think", "tool_call"), ("tool_call", "think")) for pair in pairwise(names[:-1])):
        return False
    return len(names) > 2 or not whole[whole.index("</think>") + len("</think>") : whole.index("<answer>")].strip()


def _overlaps(crop: Interval, windows: Sequence[Interval], kind: TimeReward) -> Iterator[float]:
    for window in windows:
        yield iou(crop, window) if kind == "iou" else iog(crop, window)


def time_reward(trajectory: Trajectory, qa: VideoQA, kind: TimeReward) -> float:
    """Overlap of the last crop that was carried out with the gold window, of several with the best.

    0 without a crop or a window, and where the answer is an interval: its overlap is the accuracy (released code).
    """
    crop = last_look(trajectory)
    if crop is None or qa.answer_type in INTERVAL_TYPES:
        return 0.0
    return max(_overlaps(crop, qa.windows, kind), default=0.0)


def longvt_score(trajectory: Trajectory, acc: float, fmt: float, time: float, weights: LongVTWeights) -> Score:
    """``w_acc * R_acc + w_fmt * R_fmt + w_time * R_time + w_tool * [tool used and R_acc >= 0.5]``.

    Args:
        fmt: 1.0 where :func:`format_ok`, else 0.0.
        time: See :func:`time_reward`.
    """
    terms = {
        "acc": weights.acc * acc,
        "format": weights.format * fmt,
        "time": weights.time * time,
        "tool": weights.tool * float(trajectory.tool_calls > 0 and acc >= TOOL_FROM),
    }
    return Score(reward=sum(terms.values()), acc=acc, format=fmt, terms=terms)
