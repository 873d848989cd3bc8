"""Metrics of temporal grounding for one question; benchmarks report means over questions.

=====================  ==============================================================================================
metric                 of a question
=====================  ==============================================================================================
R1@t                   whether the first predicted interval has an IoU of at least t with a gold window
mIoU                   the greatest IoU of the first predicted interval with a gold window
mIoP                   the same with IoP, whichever window that is
Acc@GQA                whether the answer is right and that IoP at least 0.5 (NExT-GQA)
mAP                    mean over the IoU thresholds 0.5, 0.55, .. 0.95 of the average precision of a ranked list
=====================  ==============================================================================================

Conventions are those of the published scripts: Moment-DETR's for QVHighlights, whose R1 takes the best gold window, and
that of NExT-GQA, which takes the best IoU and the best IoP apart. There are two differences: a question without a
readable prediction counts as 0, where NExT-GQA's script leaves it out, and an empty interval has an IoP of 0.
"""

from collections.abc import Sequence

from agentic_video.grounding.intervals import iop, iou, length
from agentic_video.types.row import Interval

RECALL_THRESHOLDS = (0.3, 0.5, 0.7)
"""Of R1."""
IOP_THRESHOLDS = (0.3, 0.5)
MAP_THRESHOLDS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
GQA_IOP = 0.5
"""Least IoP of Acc@GQA."""
MAX_PREDICTED = 10
"""So many predictions of a question count for mAP (QVHighlights' script)."""
LENGTHS: dict[str, tuple[float, float]] = {
    "short": (0.0, 10.0),
    "middle": (10.0, 30.0),
    "long": (30.0, float("inf")),
}
"""QVHighlights' groups of gold windows by their seconds: more than the first, at most the second number."""


def best_iou(predicted: Interval | None, gold: Sequence[Interval]) -> float:
    """The greatest IoU with a gold window; 0 without a prediction."""
    return 0.0 if predicted is None else max((iou(predicted, window) for window in gold), default=0.0)


def best_iop(predicted: Interval | None, gold: Sequence[Interval]) -> float:
    """The greatest IoP with a gold window; 0 without a prediction."""
    return 0.0 if predicted is None else max((iop(predicted, window) for window in gold), default=0.0)


def recall_at_one(predicted: Interval | None, gold: Sequence[Interval], threshold: float) -> float:
    """R1 at an IoU: 1.0 or 0.0."""
    return float(best_iou(predicted, gold) >= threshold)


def acc_at_gqa(acc: float, predicted: Interval | None, gold: Sequence[Interval]) -> float:
    """NExT-GQA's Acc@GQA: 1.0 for a right answer (``acc`` is 1) that is grounded, else 0.0."""
    return float(acc == 1.0 and best_iop(predicted, gold) >= GQA_IOP)


def average_precision(predicted: Sequence[Interval], gold: Sequence[Interval], threshold: float) -> float:
    """Average precision of predictions at an IoU, interpolated as in Pascal VOC 2010 and later (QVHighlights' script).

    The surest prediction chooses first, of the free windows the best; it is a hit if
    their IoU reaches the threshold.

    Args:
        predicted: The surest first; those beyond ``MAX_PREDICTED`` don't count.
        gold: The windows; without one the result is 0.
    """
    free = set(range(len(gold)))
    precisions: list[float] = []  # at each hit
    hits = 0
    for rank, interval in enumerate(predicted[:MAX_PREDICTED], start=1):
        fits = [(iou(interval, gold[number]), number) for number in free]
        best, number = max(fits, default=(0.0, -1))
        if best >= threshold:
            free.remove(number)
            hits += 1
            precisions.append(hits / rank)
    # Recall grows by the same amount at each hit, where the best precision from there on counts.
    total, highest = 0.0, 0.0
    for precision in reversed(precisions):
        highest = max(highest, precision)
        total += highest
    return total / len(gold) if gold else 0.0


def mean_average_precision(predicted: Sequence[Interval], gold: Sequence[Interval]) -> float:
    """The mean of :func:`average_precision` over ``MAP_THRESHOLDS``."""
    return sum(average_precision(predicted, gold, threshold) for threshold in MAP_THRESHOLDS) / len(MAP_THRESHOLDS)


def of_length(gold: Sequence[Interval], group: str) -> tuple[Interval, ...]:
    """The gold windows of a group of ``LENGTHS``; predictions are not sorted out (QVHighlights' script)."""
    least, most = LENGTHS[group]
    return tuple(window for window in gold if least < length(window) <= most)
