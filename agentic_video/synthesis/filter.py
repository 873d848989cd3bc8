"""The recorded episodes that are worth imitating: right, and looked at the right place (LongVT, section 3.4: RFT).

What is kept is written as it is, records that SFT reads. No model is asked.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt
from tyro.conf import Positional

from agentic_video.grounding.intervals import iou
from agentic_video.grounding.looks import last_look
from agentic_video.synthesis.inputs import (
    NO_FAULT_OF_ITS_OWN,
    Question,
    grade_of,
    question_of,
    read_episodes,
)
from agentic_video.types.jsonl import json_line
from agentic_video.types.record import Record
from agentic_video.utils.errors import SetupError
from agentic_video.utils.journal import write_whole
from agentic_video.utils.option_types import Fraction, OutputFile


@dataclass(frozen=True)
class FilterOptions:
    """Filter of recorded episodes."""

    records: Annotated[Positional[tuple[Path, ...]], Field(min_length=1)]
    """files of records, or folders of runs or evaluations"""
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
    """What was found."""

    episodes: int  # how many were looked at
    kept: int  # how many were written
    questions: int  # on how many questions
    left_out: Counter[str]  # how many were not, by reason


def look_iou(record: Record) -> float | None:
    """How well an episode's last look lies to the gold window that it fits best, 0 to 1; None without a window."""
    if not record.qa.windows:
        return None
    look = last_look(record.trajectory)
    return 0.0 if look is None else max(iou(look, window) for window in record.qa.windows)


def fault_of(record: Record, min_acc: float, min_iou: float) -> str | None:
    """Why an episode isn't kept, in a few words; None where it is."""
    if record.trajectory.end in NO_FAULT_OF_ITS_OWN:
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
    found = look_iou(record)
    if found is None:
        return "on rows without windows (--min-iou 0 keeps them)"
    return f"whose last look overlaps the evidence by less than {min_iou:g}" if found < min_iou else None


def kept_of(
    records: Iterable[Record], options: FilterOptions, kept: Counter[Question], left_out: Counter[str]
) -> Iterator[Record]:
    """The episodes that are worth imitating, in their order."""
    for record in records:
        fault = fault_of(record, options.min_acc, options.min_iou)
        question = question_of(record)
        if fault is None and options.per_question is not None and kept[question] >= options.per_question:
            fault = f"beyond {options.per_question} of a question"
        if fault is not None:
            left_out[fault] += 1
            continue
        kept[question] += 1
        yield record


def filter_episodes(options: FilterOptions) -> FilterReport:
    """Write the episodes that are worth imitating."""
    if options.out.suffix != ".jsonl":
        raise SetupError(f"--out {options.out}: expected a name that ends in .jsonl")
    records = read_episodes(options.records, options.from_step, options.out)
    left_out: Counter[str] = Counter()
    kept: Counter[Question] = Counter()
    write_whole(options.out, (json_line(record.to_dict()) for record in kept_of(records, options, kept, left_out)))
    return FilterReport(kept.total() + left_out.total(), kept.total(), len(kept), left_out)
