"""Figures of rows with gold windows: benchmarks' metrics, and the coverage of the evidence by calls."""

from collections import defaultdict
from collections.abc import Sequence

from agentic_video.grounding.answer import read_interval, read_intervals
from agentic_video.grounding.highlights import clip_scores, highlight_ap, hit_at_one, ratings_of
from agentic_video.grounding.looks import last_look, looks_at
from agentic_video.grounding.metrics import (
    IOP_THRESHOLDS,
    LENGTHS,
    RECALL_THRESHOLDS,
    acc_at_gqa,
    average_precision,
    best_iop,
    best_iou,
    mean_average_precision,
    of_length,
    recall_at_one,
)
from agentic_video.types.record import Record
from agentic_video.types.row import INTERVAL_TYPES, Interval

Values = dict[str, float]
"""Figures of one episode by name."""
Measured = tuple[float, str]
"""A figure of an episode, and its video."""
AP_SHOWN = (0.5, 0.75)
GROUNDED_IOU = 0.5
"""Least IoU of a right answer that ReXTime counts."""


def grounding_values(records: Sequence[Record]) -> dict[str, dict[str, list[Measured]]]:
    """By data source and figure the values of the episodes that have it; sources without gold windows are left out.

    An answer that can't be read counts as 0, and so does an episode without a look where one is needed.

    ======================  ==========================================================================================
    answer                  figures
    ======================  ==========================================================================================
    one interval            R1@0.3, R1@0.5, R1@0.7, mIoU
    several                 the same of the first one; mAP@0.5, mAP@0.75, mAP, and mAP of windows by length; HL mAP and
                            HL Hit@1 where people rated the clips (:mod:`agentic_video.grounding.highlights`)
    another, with windows   mIoP, IoP@0.3, IoP@0.5, mIoU, IoU@0.3, IoU@0.5 of the last look; where the answer is
                            graded Acc@GQA (right, with an IoP of 0.5) and Acc@IoU0.5 (ReXTime: with an IoU of 0.5)
    any                     how looks lie to the windows (:class:`~agentic_video.grounding.looks.WindowCoverage`)
    ======================  ==========================================================================================
    """
    found: dict[str, dict[str, list[Measured]]] = {}
    for record in records:
        looks = looks_at(record.trajectory, record.qa.windows)
        if looks is None:
            continue
        own = _of_answer(record) if record.qa.answer_type in INTERVAL_TYPES else _of_last_look(record)
        values = found.setdefault(record.qa.data_source, defaultdict(list))
        for name, value in {**own, **looks.figures()}.items():
            values[name].append((value, record.qa.video))
    return {source: dict(values) for source, values in sorted(found.items())}


def _of_answer(record: Record) -> Values:
    answer, gold = record.trajectory.answer, record.qa.windows
    if record.qa.answer_type == "interval":
        return _recalls(read_interval(answer), gold)
    spans = read_intervals(answer)
    values = _recalls(spans[0] if spans else None, gold)
    values |= {f"mAP@{least:g}": average_precision(spans, gold, least) for least in AP_SHOWN}
    values["mAP"] = mean_average_precision(spans, gold)
    if (ratings := ratings_of(record.qa)) is not None:
        scores = clip_scores(spans, len(ratings.clips)) if spans else ()
        values["HL mAP"] = highlight_ap(scores, ratings) if spans else 0.0
        values["HL Hit@1"] = hit_at_one(scores, ratings)
    for group in LENGTHS:
        if windows := of_length(gold, group):
            values[f"mAP {group}"] = mean_average_precision(spans, windows)
    return values


def _recalls(predicted: Interval | None, gold: Sequence[Interval]) -> Values:
    values = {f"R1@{least:g}": recall_at_one(predicted, gold, least) for least in RECALL_THRESHOLDS}
    return {**values, "mIoU": best_iou(predicted, gold)}


def _of_last_look(record: Record) -> Values:
    look, gold = last_look(record.trajectory), record.qa.windows
    iop, iou = best_iop(look, gold), best_iou(look, gold)
    values = {"mIoP": iop} | {f"IoP@{least:g}": float(iop >= least) for least in IOP_THRESHOLDS}
    values |= {"mIoU": iou} | {f"IoU@{least:g}": float(iou >= least) for least in IOP_THRESHOLDS}
    if (acc := record.rewards.get("acc")) is not None:
        values["Acc@GQA"] = acc_at_gqa(acc, look, gold)
        values[f"Acc@IoU{GROUNDED_IOU:g}"] = float(acc == 1.0 and iou >= GROUNDED_IOU)
    return values
