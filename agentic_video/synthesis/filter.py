"""Recorded episodes that are worth imitating: right, and looked at the right place (LongVT, section 3.4: RFT).

They are written as they are, records that SFT reads. No model is asked.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import NonNegativeInt, PositiveInt

from agentic_video.grounding.intervals import iou
from agentic_video.grounding.looks import last_look
from agentic_video.synthesis.inputs import (
    INFRASTRUCTURE_ENDS,
    EpisodeOptions,
    Question,
    check_jsonl,
    grade_of,
    question_of,
    read_episodes,
)
from agentic_video.types.jsonl import json_line
from agentic_video.types.record import Record
from agentic_video.utils.option_types import Fraction, OutputFile
from agentic_video.utils.workdir import write_whole


@dataclass(frozen=True)
class FilterOptions(EpisodeOptions):
    """Filter of recorded episodes."""

    out: OutputFile
    """file of records to write: .jsonl"""
    min_acc: Fraction = 1.0
    """least accuracy of the answer"""
    min_iou: Fraction = 0.3
    """least overlap, intersection over union, of the last look with a gold window; 0 ignores windows"""
    from_step: NonNegativeInt = 0
    """only episodes from this step of the run on (provenance.step)"""
    per_question: PositiveInt | None = None
    """most episodes of a question, the first ones (default: all)"""


@dataclass(frozen=True)
class FilterReport:
    """Numbers of episodes and questions."""

    episodes: int
    kept: int
    questions: int  # of the kept episodes
    left_out: Counter[str]  # by reason


def look_iou(record: Record) -> float | None:
    """Overlap of an episode's last look with its best gold window, 0 to 1; None without a window."""
    if not record.qa.windows:
        return None
    look = last_look(record.trajectory)
    return 0.0 if look is None else max(iou(look, window) for window in record.qa.windows)


def fault_of(record: Record, min_acc: float, min_iou: float) -> str | None:
    """Why an episode isn't kept, in a few words."""
    if record.trajectory.end in INFRASTRUCTURE_ENDS:
        return "ended by an engine or a video"
    grade = grade_of(record)
    if grade is None:
        return "without a grade (reward_extra_info.acc)"
    if record.trajectory.answer is None:
        return "without an answer"
    if grade < min_acc:
        return f"with an accuracy below {min_acc:g}"
    if min_iou <= 0:
        return None
    overlap = look_iou(record)
    if overlap is None:
        return "on rows without windows (--min-iou 0 keeps them)"
    return f"whose last look overlaps the evidence by less than {min_iou:g}" if overlap < min_iou else None


def filter_episodes(options: FilterOptions) -> FilterReport:
    """Write the episodes that are worth imitating, in their order."""
    check_jsonl(options.out)
    left_out: Counter[str] = Counter()
    kept: Counter[Question] = Counter()
    records = read_episodes(options.records, options.from_step, options.out)

    def chosen() -> Iterator[Record]:
        for record in records:
            question, most = question_of(record), options.per_question
            fault = fault_of(record, options.min_acc, options.min_iou)
            if fault is None and most is not None and kept[question] >= most:
                fault = f"beyond {most} of a question"
            if fault is None:
                kept[question] += 1
                yield record
            else:
                left_out[fault] += 1

    write_whole(options.out, (json_line(record.to_dict()) for record in chosen()))
    return FilterReport(kept.total() + left_out.total(), kept.total(), len(kept), left_out)
